//! A hook around every run of a plugin, for metrics, traces and logs of the caller.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use super::error::{Error, Verb};

/// A run of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// The type, which is the name of its program.
    pub plugin: &'a str,
    /// The verb.
    pub verb: Verb,
}

/// A run of a plugin; resolves to its standard output. Dropping it kills the plugin.
pub type PluginRun<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send + 'a>>;

/// Observes the runs of plugins.
///
/// ```
/// use std::time::Instant;
///
/// use criscope_cni::{Invocation, PluginObserver, PluginRun};
///
/// #[derive(Debug)]
/// struct Durations;
///
/// impl PluginObserver for Durations {
///     fn wrap<'a>(&'a self, invocation: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a> {
///         Box::pin(async move {
///             let start = Instant::now();
///             let output = run.await;
///             let Invocation { plugin, verb } = invocation;
///             eprintln!("{plugin} {verb}: {:?}, succeeded: {}", start.elapsed(), output.is_ok());
///             output
///         })
///     }
/// }
/// ```
pub trait PluginObserver: fmt::Debug + Send + Sync {
    /// Returns the future that is polled in place of `run`. It should poll `run` until that resolves and return its output.
    fn wrap<'a>(&'a self, invocation: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a>;

    /// Environment variables for the plugin, such as `TRACEPARENT`. Called from within the future that [`Self::wrap`]
    /// returned, so that task-local state of the observer is set.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The observer of [`Settings`](super::Settings); by default none.
#[derive(Clone, Debug)]
pub struct Observer(Arc<dyn PluginObserver>);

impl<T: PluginObserver + 'static> From<T> for Observer {
    fn from(observer: T) -> Self {
        Self(Arc::new(observer))
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::from(Unobserved)
    }
}

impl Deref for Observer {
    type Target = dyn PluginObserver;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

#[derive(Debug)]
struct Unobserved;

impl PluginObserver for Unobserved {
    fn wrap<'a>(&'a self, _: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a> {
        run
    }
}
