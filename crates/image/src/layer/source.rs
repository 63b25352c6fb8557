//! Where the bytes of a layer come from.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::permits::Requester;
use crate::artifact::ArtifactFile;
use crate::decrypt::LayerKey;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::registry::Repository;
use crate::store::LayerClaim;

/// Where the bytes of a layer come from.
#[derive(Clone, Debug)]
pub(crate) enum LayerSource {
    /// With the key, if the blob is encrypted.
    Registry(Arc<Repository>, Descriptor, Option<Arc<LayerKey>>),
    /// The files of an artifact.
    Artifact(Arc<Repository>, Arc<[ArtifactFile]>),
    /// Part of an archive on disk. It has its own digest unless the archive is one of `docker save`.
    Archive(Arc<ArchiveSlice>),
}

/// A range of bytes of an archive.
#[derive(Debug)]
pub(crate) struct ArchiveSlice {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) digest: Option<Digest>,
}

impl LayerSource {
    /// Identifies the requester of a permit. The address of an object that each pull owns identifies the pull.
    pub(super) fn requester(&self) -> Requester {
        match self {
            Self::Registry(repository, ..) | Self::Artifact(repository, _) => Requester {
                registry: repository.registry().into(),
                pull: Arc::as_ptr(repository).addr(),
            },
            Self::Archive(slice) => Requester {
                registry: "".into(),
                pull: Arc::as_ptr(&slice.file).addr(),
            },
        }
    }

    /// The proof of a layer that a pull with this source shows.
    pub(super) fn claim(&self, layer: &Digest) -> LayerClaim {
        /// All archives are imported by root.
        const ARCHIVES: &str = "";
        match self {
            Self::Registry(_, _, Some(key)) => LayerClaim::Key(key.proof()),
            Self::Registry(repository, blob, None) => {
                LayerClaim::blob(layer, Some(&blob.digest), &repository.full_name())
            }
            Self::Artifact(..) => LayerClaim::artifact(layer),
            Self::Archive(slice) => LayerClaim::blob(layer, slice.digest.as_ref(), ARCHIVES),
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Registry(_, descriptor, _) => descriptor.size,
            Self::Artifact(_, files) => {
                let sizes = files.iter().map(|file| file.blob.size);
                sizes.fold(0, u64::saturating_add)
            }
            Self::Archive(slice) => slice.size,
        }
    }
}
