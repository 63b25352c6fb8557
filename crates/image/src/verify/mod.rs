//! Verification of images: programs in a directory, as containerd runs them, and a signature policy, as CRI-O reads it.
//!
//! Both are off unless configured. They are asked once the manifest is known, before anything else of the image is fetched;
//! the policy also when an image that is already here is about to be used. Whatever cannot be decided is a refusal.

mod evidence;
mod names;
mod payload;
mod plugins;
mod policy;
mod sigstore;
mod simple_signing;

use std::sync::Arc;

pub(crate) use self::evidence::Evidence;
use self::policy::JudgedName;
#[cfg(any(test, fuzzing))]
pub(crate) use self::simple_signing::fuzz;
use crate::blocking::blocking;
use crate::config::PolicyFiles;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image_store::ImageStore;
use crate::observer::{Step, Steps, Verdict, Verifier, observed};
use crate::reference::Reference;
use crate::registry::Repository;

/// The subject of a verification: a reference and its target.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) reference: &'a Reference,
    /// The target of the reference: a manifest, or an index that leads to it.
    pub(crate) top: &'a Descriptor,
    /// The manifest for this platform.
    pub(crate) manifest: &'a Digest,
    /// The Kubernetes namespace that the image is for.
    pub(crate) namespace: Option<&'a str>,
}

impl Subject<'_> {
    fn refused(&self, reason: String) -> Error {
        refused(self.reference, reason)
    }
}

fn refused(reference: &Reference, reason: String) -> Error {
    Error::SignatureValidationFailed {
        reference: reference.to_string(),
        reason,
    }
}

impl ImageStore {
    /// Asks all verifiers, and returns the signatures that were found, to be kept with the image.
    ///
    /// # Errors
    ///
    /// [`Error::SignatureValidationFailed`] if one refuses the image or cannot decide; an error of the registry if signatures
    /// cannot be fetched.
    pub(crate) async fn verify(
        &self,
        repository: &Repository,
        subject: &Subject<'_>,
        steps: &Arc<dyn Steps>,
    ) -> Result<Vec<Evidence>> {
        let mut evidence = Vec::new();
        if let Some(plugins) = &self.config.verifiers {
            let work = async {
                let judged = plugins.judge(subject.reference, subject.top).await;
                judged.map_err(|reason| subject.refused(reason))
            };
            let judged = observed(&**steps, Step::Verify, Some("plugins"), work).await;
            self.verified(Verifier::Plugin, judged)?;
        }
        if let Some(policy) = &self.config.policy {
            let work = async {
                evidence = self.signatures(policy, repository, subject).await?;
                let names = vec![JudgedName::Name(subject.reference.clone())];
                self.evaluate(names, subject.namespace, evidence.clone())
                    .await
            };
            let judged = observed(&**steps, Step::Verify, Some("policy"), work).await;
            self.verified(Verifier::Policy, judged)?;
        }
        Ok(evidence)
    }

    /// Checks that the signature policy allows an image of the store to be used, in a Kubernetes namespace. `text` is how the image is
    /// asked for; `verify/names.rs` says which of its names are judged. The signatures are the ones that were found when it was pulled. Without a
    /// policy everything is allowed.
    ///
    /// # Errors
    ///
    /// [`Error::SignatureValidationFailed`], [`Error::NotFound`], [`Error::Io`].
    pub async fn allow(&self, id: &Digest, text: &str, namespace: Option<&str>) -> Result<()> {
        if self.config.policy.is_none() {
            return Ok(());
        }
        let known = self.store.image(id);
        let known = known.ok_or_else(|| Error::missing_image(id))?;
        let digests = known.0.evidence.clone();
        let judged = self.names_to_judge(&known.into(), text)?;
        let store = Arc::clone(&self.store);
        let read = blocking(move || {
            let all = digests.iter();
            all.map(|digest| Evidence::read(digest, &store.content(digest)?))
                .collect::<Result<Vec<_>>>()
        });
        let result = self.evaluate(judged.names, namespace, read.await?).await;
        let result = result.map_err(|error| match error {
            Error::SignatureValidationFailed { reference, reason } if judged.are_all => {
                let reason = format!(
                    "{reason}; image {id} is not asked for by one of its names, so all of them must be allowed"
                );
                Error::SignatureValidationFailed { reference, reason }
            }
            error => error,
        });
        self.verified(Verifier::Policy, result)
    }

    /// Evaluates the policy of the namespace. Files are read each time: changes need no restart.
    async fn evaluate(
        &self,
        names: Vec<JudgedName>,
        namespace: Option<&str>,
        evidence: Vec<Evidence>,
    ) -> Result<()> {
        let Some(files) = self.config.policy.clone() else {
            return Ok(());
        };
        let namespace = namespace.map(str::to_owned);
        blocking(move || files.judge(&names, namespace.as_deref(), &evidence)).await
    }

    fn verified<T>(&self, by: Verifier, judged: Result<T>) -> Result<T> {
        let verdict = match &judged {
            Ok(_) => Verdict::Accepted,
            Err(Error::SignatureValidationFailed { .. }) => Verdict::Refused,
            Err(_) => Verdict::Failed,
        };
        self.config.observer.verified(by, verdict);
        judged
    }

    /// Fetches the signatures of the manifest and of the index that leads to it, if a policy needs them: who signs an index signs
    /// the manifests in it.
    async fn signatures(
        &self,
        policy: &PolicyFiles,
        repository: &Repository,
        subject: &Subject<'_>,
    ) -> Result<Vec<Evidence>> {
        let (files, name) = (policy.clone(), subject.reference.clone());
        let (is_attached, store) = blocking(move || {
            let needs = files.needs(&name);
            let store = needs.lookaside.then(|| files.lookaside(&name)).transpose();
            let store = store.map_err(|reason| refused(&name, reason))?;
            Ok((needs.attached, store))
        })
        .await?;
        let index = (subject.top.digest != *subject.manifest).then_some(&subject.top.digest);
        let mut found = Vec::new();
        for manifest in [subject.manifest].into_iter().chain(index) {
            let mut signatures = Vec::new();
            if is_attached {
                signatures = repository.signatures(manifest).await?;
            }
            if let Some(store) = &store {
                signatures.extend(self.registries.lookaside(store, manifest).await?);
            }
            if !signatures.is_empty() {
                found.push(Evidence {
                    manifest: manifest.clone(),
                    signatures,
                });
            }
        }
        Ok(found)
    }
}
