//! The runtime side of CNI, versions 0.3.0 to 1.1.0 of the [specification]: network configurations (section 1), execution
//! of plugins (sections 2 to 4), results and errors (section 5), and libcni's cache of attachments.
//!
//! [`Cni`] implements every verb for one directory of network configurations: [`add`](Cni::add), [`del`](Cni::del),
//! [`check`](Cni::check), STATUS as [`ready`](Cni::ready), and [`gc`](Cni::gc). The version of each network is negotiated
//! from its configuration; like libcni, plugins are not queried for theirs (VERSION) before a verb.
//!
//! Before the first plugin of an ADD runs, its parameters are written to the cache, so that a DEL after a crash or a change
//! of the configuration uses the same ones. Verbs on one pod must not overlap: the caller serializes them.
//!
//! [specification]: https://www.cni.dev/docs/spec/

mod attached;
mod cache;
mod capabilities;
mod chain;
mod conf;
mod detach;
mod discover;
mod error;
mod exec;
#[doc(hidden)]
pub mod fuzz;
mod host_local;
mod lookup;
mod network;
mod observer;
mod pod;
mod result;
mod settings;
mod template;
mod template_text;
mod version;

pub use self::capabilities::{Bandwidth, Capabilities, Dns, IpRange, PortMapping, Protocol};
pub use self::conf::{Network, Plugin};
pub use self::discover::{Loaded, Problem};
pub use self::error::{Error, ParseError, PluginError, Verb};
pub use self::network::Cni;
pub use self::observer::{Invocation, Observer, PluginObserver, PluginRun};
pub use self::pod::{Attached, AttachedNetwork, Attachment, Interface, Pod};
pub use self::result::{Address, CniResult, Preference};
pub use self::settings::{Loopback, Settings};
pub use self::template::{TemplateError, write_network};
pub use self::version::Version;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
