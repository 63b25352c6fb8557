//! The network of a pod, by the CNI specification 0.3.0 to 1.1.0.
//!
//! [`Cni`] does the verbs for one directory of network configurations. Before the first plugin of an ADD runs, what it
//! will be told is written to the cache, so that a DEL after a crash, a changed configuration or another handler's
//! directory says the same. Verbs on one pod must not overlap: the caller keeps them in turn.

mod cache;
mod capabilities;
mod chain;
mod conf;
mod discover;
mod error;
mod exec;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod network;
mod pod;
mod result;
mod settings;
mod version;

pub use self::capabilities::{Bandwidth, Capabilities, Dns, IpRange, PortMapping, Protocol};
pub use self::conf::{Network, Plugin};
pub use self::discover::{Loaded, Problem};
pub use self::error::{Error, PluginError, Verb};
pub use self::network::Cni;
pub use self::pod::{Attached, Attachment, Interface, Pod};
pub use self::result::{Address, CniResult, Preference};
pub use self::settings::{Loopback, Settings};
pub use self::version::Version;
