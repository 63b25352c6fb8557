//! The image verbs.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::json;

use super::call_context::CallContext;
use super::error::{Error, Result};
use super::oci::spec::{AccountKind, AccountRef, split_image_user};
use super::{Runtime, id};
use criscope_cri::v1;
use criscope_image::{Auth, AuthFields, FoundImage, Image, PullOptions};

impl Runtime {
    /// Returns the local images, or the one that the filter names.
    ///
    /// # Errors
    /// If the filter is not an image reference.
    pub fn list_images(&self, filter: Option<&v1::ImageFilter>) -> Result<Vec<v1::Image>> {
        let asked = filter
            .and_then(|filter| filter.image.as_ref())
            .map(|image| image.image.as_str())
            .filter(|reference| !reference.is_empty());
        let images = self.live().images.list(asked)?;
        Ok(images.iter().map(|image| self.shown(image)).collect())
    }

    /// Returns the status of an image; empty if it is not local.
    ///
    /// # Errors
    /// If the name is not an image reference.
    pub async fn image_status(
        &self,
        request: &v1::ImageStatusRequest,
    ) -> Result<v1::ImageStatusResponse> {
        let images = self.images();
        let found = images.status(asked(request.image.as_ref())?)?;
        let mut info = HashMap::new();
        if let (true, Some(image)) = (request.verbose, &found) {
            let layers = images.layers(image.id.as_str())?;
            let labels = images.labels(&image.id).await?;
            let usage = images.layer_usage(image.id.as_str())?;
            let usage = usage
                .iter()
                .map(|layer| json!({"id": layer.id, "bytes": layer.bytes, "inodes": layer.inodes}));
            let shown = json!({
                "layers": layers.ids(),
                "layerUsage": usage.collect::<Vec<_>>(),
                "pulledAt": image.pulled_at,
                "imageSpec": {"config": {
                    "Entrypoint": image.config.entrypoint,
                    "Cmd": image.config.cmd,
                    "Env": image.config.env,
                    "User": image.config.user,
                    "WorkingDir": image.config.working_dir,
                    "StopSignal": image.config.stop_signal,
                    "Labels": labels,
                }},
            });
            info.insert("info".to_owned(), shown.to_string());
        }
        Ok(v1::ImageStatusResponse {
            image: found.map(|image| self.annotated(&image)),
            info,
        })
    }

    /// Pulls an image and returns its id. Cancellation by the caller cancels the pull; fetched data is kept for the next one.
    ///
    /// # Errors
    /// [`criscope_image::Error`], [`Error::Deadline`], [`Error::Cancelled`].
    pub async fn pull_image(
        &self,
        request: v1::PullImageRequest,
        call: &CallContext,
    ) -> Result<String> {
        let reference = asked(request.image.as_ref())?;
        let fields = request.auth.map(|auth| AuthFields {
            username: auth.username,
            password: auth.password,
            auth: auth.auth,
            server_address: auth.server_address,
            identity_token: auth.identity_token,
            registry_token: auth.registry_token,
        });
        if fields.as_ref().is_some_and(AuthFields::is_malformed) {
            let why = "the auth of the request's credentials is not user:password in base64";
            return Err(Error::invalid(why));
        }
        let auth = fields.as_ref().and_then(Auth::from_fields);
        let sandbox = request.sandbox_config.and_then(|config| config.metadata);
        let options = PullOptions {
            auth,
            deadline: call.deadline().map(Into::into),
            namespace: sandbox.map(|metadata| metadata.namespace),
        };
        let pull = async { Ok(self.live().images.pull_with(reference, &options).await?) };
        Ok(call.wait(pull).await?.to_string())
    }

    /// Checks that the signature policy of a pod's namespace allows an image to be used: it may be older than the policy, or
    /// have been pulled for another namespace.
    ///
    /// The kubelet sends the ID of the image, and in addition the name in the pod's specification; other callers send only one name. Neither
    /// is taken for a name of the image before the store confirms it. If the image was found by a name, that one must be allowed too.
    ///
    /// # Errors
    /// [`criscope_image::Error::SignatureValidationFailed`].
    pub(super) async fn check_policy(
        &self,
        found: &FoundImage,
        spec: &v1::ImageSpec,
        namespace: &str,
    ) -> Result<()> {
        let live = self.live();
        let written = &spec.user_specified_image;
        let is_other = written.is_empty() || (found.name.is_some() && spec.image != *written);
        let texts = [
            (!written.is_empty()).then_some(written),
            is_other.then_some(&spec.image),
        ];
        for text in texts.into_iter().flatten() {
            let allowed = live.images.allow(&found.image.id, text, Some(namespace));
            allowed.await?;
        }
        Ok(())
    }

    /// Removes an image with all its names. Succeeds if it is not local. A pinned image is removed as well: the mark only keeps
    /// the kubelet's garbage collection from requesting it.
    ///
    /// # Errors
    /// If the name is not an image reference.
    pub async fn remove_image(&self, image: Option<&v1::ImageSpec>) -> Result<()> {
        self.live().images.remove(asked(image)?).await?;
        Ok(())
    }

    /// Returns the disk usage of images and of writable layers. The kubelet uses only the first entry of each list, and assumes
    /// different file systems if the mount points differ as strings (its container_gc.go): so both report the same directory if
    /// they are on one file system.
    /// # Errors
    /// If the store cannot be read.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        let info = self.live().images.fs_info().await?;
        let at = info.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = at.as_nanos().try_into().unwrap_or_else(|_| id::now());
        let written = self.disks.total();
        let (bytes, inodes) = (written.bytes, written.inodes);
        let writable = filesystem_usage(at, self.writable_root(), bytes, inodes);
        let (bytes, inodes) = (info.used_bytes, info.inodes_used);
        let images = filesystem_usage(at, &info.root, bytes, inodes);
        Ok(v1::ImageFsInfoResponse {
            container_filesystems: vec![writable],
            image_filesystems: vec![images],
        })
    }

    /// The mount point reported for writable layers: that of images if the file system is the same.
    pub(super) fn writable_root(&self) -> &Path {
        // A reload does not change it.
        let images = &self.settings.live.config.images.root;
        let root = self.settings.paths.root();
        if device(root) == device(images) {
            images
        } else {
            root
        }
    }

    /// Like [`Self::shown`], with the annotations of its manifest, which CRI-O returns for a single image and not in lists.
    fn annotated(&self, image: &Image) -> v1::Image {
        let mut shown = self.shown(image);
        let annotations = self.live().images.annotations(&image.id);
        if let Some(spec) = &mut shown.spec {
            let annotations = annotations.iter();
            spec.annotations = annotations
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
        }
        shown
    }

    /// Converts an image to the CRI's form.
    fn shown(&self, image: &Image) -> v1::Image {
        let (uid, username) = reported_user(&image.config.user);
        v1::Image {
            id: image.id.to_string(),
            repo_tags: image.tags.clone(),
            repo_digests: image.digests.clone(),
            size: image.size,
            uid,
            username,
            spec: Some(v1::ImageSpec {
                image: image.id.to_string(),
                ..v1::ImageSpec::default()
            }),
            pinned: image.pinned || self.is_pinned(image),
        }
    }

    /// Returns whether the configuration pins any of its names.
    fn is_pinned(&self, image: &Image) -> bool {
        let live = self.live();
        let patterns = &live.settings.config.images.pinned_images;
        let mut names = image.tags.iter().chain(&image.digests);
        names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
    }
}

fn asked(image: Option<&v1::ImageSpec>) -> Result<&str> {
    let reference = image.map_or("", |image| &image.image);
    match reference {
        "" => Err(Error::invalid("the request names no image")),
        reference => Ok(reference),
    }
}

/// Returns the user of an image as uid or name. The kubelet judges `runAsNonRoot` by it: it refuses uid 0, every name, and an
/// image without either, which is root. It then sends the same value with CreateContainer. A text that is not a valid user is
/// reported as a name: the kubelet refuses it, or CreateContainer does.
fn reported_user(text: &str) -> (Option<v1::Int64Value>, String) {
    let (user, _) = split_image_user(text);
    match AccountRef::parse(AccountKind::User, user) {
        Ok(AccountRef::Id(id)) => (Some(v1::Int64Value { value: id.into() }), String::new()),
        Ok(AccountRef::Name(_)) | Err(_) => (None, user.to_owned()),
    }
}

fn filesystem_usage(
    timestamp: i64,
    root: &Path,
    used_bytes: u64,
    inodes_used: u64,
) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp,
        fs_id: Some(v1::FilesystemIdentifier {
            mountpoint: root.display().to_string(),
        }),
        used_bytes: Some(v1::UInt64Value { value: used_bytes }),
        inodes_used: Some(v1::UInt64Value { value: inodes_used }),
    }
}

fn device(path: &Path) -> Option<u64> {
    path.metadata().map(|found| found.dev()).ok()
}

#[cfg(test)]
mod tests {
    use super::reported_user;

    #[test]
    fn the_user_of_an_image_is_reported_as_number_or_name() {
        for (text, uid, name) in [
            ("", None, ""),
            (":1000", None, ""),
            ("1000:1", Some(1000), ""),
            ("1000", Some(1000), ""),
            ("00", Some(0), ""),
            ("web:web", None, "web"),
            ("4294967294", Some(4_294_967_294), ""),
            ("4294967295", None, "4294967295"),
            ("4294967296:0", None, "4294967296"),
            ("18446744073709551616", None, "18446744073709551616"),
            ("+5", None, "+5"),
            ("-1", None, "-1"),
            (" 5", None, " 5"),
            ("0x10", None, "0x10"),
            ("\u{661}", None, "\u{661}"),
        ] {
            let (found, username) = reported_user(text);
            let found = found.map(|uid| uid.value);
            assert_eq!((found, username.as_str()), (uid, name), "{text:?}");
        }
    }
}
