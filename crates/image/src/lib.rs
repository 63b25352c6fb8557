//! Container images: an OCI distribution client, unpacking of layers, archives (import and export), and a store of images for overlayfs.
//!
//! | type | purpose |
//! |---|---|
//! | [`Reference`], [`Digest`] | names of images and of content |
//! | [`RegistryClient`], [`Repository`] | manifests and blobs of registries: mirrors and TLS from containerd's `hosts.toml`, authentication, retries |
//! | [`ImageStore`] | pulls, imports and exports images, shares their layers, and removes unused ones |
//! | [`ImportDirectory`] | imports archives that appear in a directory |
//! | [`Observer`] | receives the steps of pulls and imports |
//!
//! An image is identified by its ID, the digest of its configuration; references resolve to IDs. Each layer is unpacked into
//! a directory of its own, which images share.
//!
//! The store keeps these invariants, also if a pull is cancelled or the process killed:
//!
//! - A listed image is complete. Its record is written last and removed first.
//! - A layer under its final name is complete: it is unpacked under a temporary name, checked, and renamed.
//! - A layer stays as long as an image, a pull or a [`LayerLease`] needs it.
//! - Untrusted content is used only after its digest has been checked, and everything read into memory or written to disk
//!   has a limit.
//!
//! Unpacking needs root, because layers have owners and devices. TLS uses the process-wide crypto provider of `rustls`, and
//! installs that of `ring` if there is none.

mod artifact;
mod blocking;
mod choice;
mod config;
mod credentials;
mod decrypt;
mod descriptor;
mod digest;
mod docker_config;
mod error;
mod export;
mod files;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod image_config;
mod image_store;
mod import;
mod json;
mod layer;
mod lookup;
mod manifest;
mod node_files;
mod observer;
mod platform;
mod program;
mod progress;
mod pull;
mod rebase;
mod reference;
mod registry;
mod requests;
mod resolve;
#[cfg(test)]
mod shapes_tests;
mod store;
mod unpack;
mod verify;

pub use criscope_linux::free_space::Shortage;

pub use self::artifact::{ArtifactFile, ArtifactManifest};
pub use self::config::{
    Decryption, Failpoint, FailpointHook, ImageStoreConfig, Limits, PolicyFiles, Timeouts,
    VerifierPlugins,
};
pub use self::credentials::{Auth, AuthFields, Credentials};
pub use self::descriptor::Descriptor;
pub use self::digest::{Digest, InvalidDigest};
pub use self::error::{Error, KeyFailure, Result, ServerAnswer};
pub use self::export::{ExportOptions, ExportWatch, ExportedImage};
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::image_config::ImageConfig;
pub use self::image_store::{FsInfo, Image, ImageId, ImageStore, LayerLease};
pub use self::import::{DirectoryImport, ImportDirectory, ImportedImage};
pub use self::lookup::FoundImage;
pub use self::manifest::{FetchedManifest, ImageManifest, Manifest, UndeclaredManifest};
pub use self::node_files::{Affected, UnusableFile};
pub use self::observer::{
    ActiveStep, ImportEnd, NoObserver, Observer, Outcome, RateLimit, Step, Steps, Verdict, Verifier,
};
pub use self::platform::Platform;
pub use self::progress::{EndedPull, LayerPhase, LayerView, PullPhase, PullView};
pub use self::pull::PullOptions;
pub use self::reference::Reference;
pub use self::registry::{BlobPart, ClientCertificate, RegistryClient, Repository};
pub use self::requests::RequestProgress;
pub use self::store::{Collected, LayerUsage, Problem, RECORD_VERSION};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
