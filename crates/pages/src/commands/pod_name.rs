//! The pod of a command: as people, kubectl and criscope write it.

/// A pod that a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// The namespace, if the command names one.
    pub namespace: Option<String>,
    /// The name of the pod.
    pub name: String,
}

/// The arguments name no pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PodNameError {
    /// They are not a pod.
    #[error("{0:?} is not a pod: write POD, NAMESPACE/POD, or POD with -n NAMESPACE")]
    NoPod(String),
    /// They have two namespaces.
    #[error("two namespaces, {0:?} and {1:?}: remove one")]
    Namespaces(String, String),
}

impl PodName {
    /// Reads `POD`, `NAMESPACE/POD`, `pod/POD` and `pod POD` as in kubectl, or `NAMESPACE POD` as in the lists of kubectl.
    ///
    /// # Errors
    /// If the words have another form, or differ from `namespace`, the value of `-n`.
    pub fn parse(words: &[String], namespace: Option<&str>) -> Result<Self, PodNameError> {
        let parts: Vec<_> = words.iter().flat_map(|word| word.split('/')).collect();
        let parts = match *parts {
            ["pod" | "pods" | "po", ref rest @ ..] if !rest.is_empty() => rest,
            _ => &parts[..],
        };
        let (said, name) = match *parts {
            [name] => (None, name),
            [said, name] => (Some(said), name),
            _ => return Err(PodNameError::NoPod(words.join(" "))),
        };
        if name.is_empty() || said == Some("") {
            return Err(PodNameError::NoPod(words.join(" ")));
        }
        match (said, namespace) {
            (Some(said), Some(flag)) if said != flag => {
                Err(PodNameError::Namespaces(flag.to_owned(), said.to_owned()))
            }
            _ => Ok(Self {
                namespace: said.or(namespace).map(str::to_owned),
                name: name.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_named_as_kubectl_names_them() {
        for (words, flag, namespace, name) in [
            ("shop/web", None, Some("shop"), "web"),
            ("web", None, None, "web"),
            ("web", Some("shop"), Some("shop"), "web"),
            ("pod/web", Some("shop"), Some("shop"), "web"),
            ("pod/web", None, None, "web"),
            ("pod web", None, None, "web"),
            ("pods shop/web", None, Some("shop"), "web"),
            ("shop web", None, Some("shop"), "web"),
            ("shop/web", Some("shop"), Some("shop"), "web"),
            // A pod may have such a name.
            ("pod", None, None, "pod"),
        ] {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            let expected = PodName {
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            };
            assert_eq!(PodName::parse(&words, flag), Ok(expected), "{words:?}");
        }
    }

    #[test]
    fn anything_else_is_no_pod() {
        for (words, flag) in [
            ("", None),
            ("a/b/c", None),
            ("a b c", None),
            ("/b", None),
            ("a/", None),
            ("a/b", Some("c")),
        ] {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            assert!(PodName::parse(&words, flag).is_err(), "{words:?} {flag:?}");
        }
    }
}
