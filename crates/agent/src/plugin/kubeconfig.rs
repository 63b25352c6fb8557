//! The API server and the credentials, from the same places as for kubectl.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// An API server that cannot be connected to within this time counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which cluster, and as whom; the names are those of kubectl.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct KubeconfigArgs {
    /// The kubeconfig [default: the files of KUBECONFIG, or ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The cluster of the kubeconfig, instead of the context's
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// The user of the kubeconfig, instead of the context's
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Act as this user, if you may impersonate it
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
}

/// The reason why no cluster is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterConfigError {
    /// No kubeconfig exists, and this is no pod of a cluster.
    #[error("there is no kubeconfig: {}", missing(.0))]
    Missing(Vec<PathBuf>),
    /// The kubeconfig cannot be read.
    #[error("kubeconfig {}: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The kubeconfig does not have the name.
    #[error("the kubeconfig has no {kind} {name}; it has {}", listed(.known))]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The names that the kubeconfig has.
        known: Vec<String>,
    },
    /// No context is chosen.
    #[error("the kubeconfig chooses no context; it has {}", listed(.0))]
    NoContext(Vec<String>),
    /// The kubeconfig is incomplete.
    #[error("kubeconfig: {0}")]
    Broken(KubeconfigError),
    /// The service account of this pod cannot be used.
    #[error("the service account of this pod cannot be used: {0}")]
    InCluster(kube::config::InClusterError),
}

impl ClusterConfigError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing(_) => {
                Some("name one with --kubeconfig, or in the environment variable KUBECONFIG")
            }
            Self::NoContext(_) => Some("name one with --context, or `kubectl config use-context`"),
            _ => None,
        }
    }
}

fn missing(files: &[PathBuf]) -> String {
    match files {
        [] => "this user has no home directory".to_owned(),
        [file] => format!("{} does not exist", file.display()),
        files => {
            let files: Vec<_> = files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            format!("none of these exists: {}", files.join(", "))
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

impl KubeconfigArgs {
    /// The configuration of a client.
    ///
    /// # Errors
    /// If there is no usable kubeconfig, and this is no pod of a cluster.
    pub async fn load(&self) -> Result<kube::Config, ClusterConfigError> {
        let files = self.files(
            env::var_os("KUBECONFIG").as_deref(),
            env::home_dir().as_deref(),
        );
        let mut config = match self.read(&files)? {
            Some(kubeconfig) => self.choose(kubeconfig).await?,
            None if env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                kube::Config::incluster().map_err(ClusterConfigError::InCluster)?
            }
            None => return Err(ClusterConfigError::Missing(files)),
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        if let Some(user) = &self.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        Ok(config)
    }

    /// Names of the contexts, for completion.
    pub fn contexts(&self) -> Vec<String> {
        let files = self.files(
            env::var_os("KUBECONFIG").as_deref(),
            env::home_dir().as_deref(),
        );
        match self.read(&files) {
            Ok(Some(kubeconfig)) => context_names(&kubeconfig),
            _ => Vec::new(),
        }
    }

    /// Paths of kubeconfigs: from the argument, else from the variable, else the default.
    fn files(&self, variable: Option<&OsStr>, home: Option<&Path>) -> Vec<PathBuf> {
        if let Some(file) = &self.kubeconfig {
            return vec![file.clone()];
        }
        let named = variable.into_iter().flat_map(env::split_paths);
        let named: Vec<_> = named.filter(|file| !file.as_os_str().is_empty()).collect();
        if named.is_empty() {
            home.map(|home| home.join(".kube").join("config"))
                .into_iter()
                .collect()
        } else {
            named
        }
    }

    /// Merges the files. Missing files are skipped, as kubectl does, except for one that an argument names.
    fn read(&self, files: &[PathBuf]) -> Result<Option<Kubeconfig>, ClusterConfigError> {
        let mut merged = None;
        for file in files
            .iter()
            .filter(|file| self.kubeconfig.is_some() || file.exists())
        {
            let read = Kubeconfig::read_from(file).and_then(|next| match merged.take() {
                Some(before) => Kubeconfig::merge(before, next),
                None => Ok(next),
            });
            merged = Some(read.map_err(|error| {
                let reason = match &error {
                    KubeconfigError::ReadConfig(error, _) => error.to_string(),
                    KubeconfigError::Parse(error) => first_line(&error.to_string()),
                    other => other.to_string(),
                };
                ClusterConfigError::Unreadable {
                    file: file.clone(),
                    reason,
                }
            })?);
        }
        Ok(merged)
    }

    async fn choose(&self, kubeconfig: Kubeconfig) -> Result<kube::Config, ClusterConfigError> {
        let contexts = context_names(&kubeconfig);
        let Some(context) = self.context.clone().or(kubeconfig.current_context.clone()) else {
            return Err(ClusterConfigError::NoContext(contexts));
        };
        let clusters = kubeconfig
            .clusters
            .iter()
            .map(|one| one.name.clone())
            .collect();
        let users = kubeconfig
            .auth_infos
            .iter()
            .map(|one| one.name.clone())
            .collect();
        let names = [
            ("context", Some(&context), contexts),
            ("cluster", self.cluster.as_ref(), clusters),
            ("user", self.user.as_ref(), users),
        ];
        for (kind, name, known) in names {
            if let Some(name) = name.filter(|name| !known.contains(name)) {
                let name = name.clone();
                return Err(ClusterConfigError::Unknown { kind, name, known });
            }
        }
        let options = KubeConfigOptions {
            context: Some(context),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(ClusterConfigError::Broken)
    }
}

fn context_names(kubeconfig: &Kubeconfig) -> Vec<String> {
    kubeconfig
        .contexts
        .iter()
        .map(|one| one.name.clone())
        .collect()
}

/// The parser quotes the file below the reason.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CONTEXTS: &str = "\
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: shop}}
- {name: two, context: {cluster: c, user: u}}
";

    fn args(file: &Path) -> KubeconfigArgs {
        KubeconfigArgs {
            kubeconfig: Some(file.to_owned()),
            ..KubeconfigArgs::default()
        }
    }

    #[tokio::test]
    async fn names_that_the_kubeconfig_does_not_have_are_said_with_those_that_it_has() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), TWO_CONTEXTS).expect("written");
        let mut args = args(file.path());
        let config = args.load().await.expect("a cluster");
        assert_eq!(config.default_namespace, "shop");
        assert_eq!(args.contexts(), ["one", "two"]);
        args.context = Some("two".to_owned());
        args.impersonate = Some("alice".to_owned());
        let config = args.load().await.expect("a cluster");
        assert_eq!(config.default_namespace, "default");
        assert_eq!(config.auth_info.impersonate.as_deref(), Some("alice"));
        args.context = Some("three".to_owned());
        let error = args.load().await.expect_err("no such context");
        assert_eq!(
            error.to_string(),
            "the kubeconfig has no context three; it has one, two"
        );
        args.context = None;
        args.user = Some("x".to_owned());
        let error = args.load().await.expect_err("no such user");
        assert_eq!(error.to_string(), "the kubeconfig has no user x; it has u");
        std::fs::write(
            file.path(),
            TWO_CONTEXTS.replace("current-context: one\n", ""),
        )
        .expect("written");
        args.user = None;
        let error = args.load().await.expect_err("no context");
        assert_eq!(
            error.to_string(),
            "the kubeconfig chooses no context; it has one, two"
        );
        std::fs::write(file.path(), "{").expect("written");
        let error = args.load().await.expect_err("no YAML").to_string();
        let path = file.path().display();
        assert!(
            error.starts_with(&format!("kubeconfig {path}: ")),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn files_come_from_the_argument_the_variable_or_the_home_directory() {
        let mut args = KubeconfigArgs::default();
        let home = Some(Path::new("/home/a"));
        assert_eq!(args.files(None, home), [Path::new("/home/a/.kube/config")]);
        let list = env::join_paths(["/a", "", "/b"]).expect("a list");
        assert_eq!(
            args.files(Some(&list), home),
            [Path::new("/a"), Path::new("/b")]
        );
        assert_eq!(args.files(Some("".as_ref()), None), Vec::<PathBuf>::new());
        args.kubeconfig = Some("/c".into());
        assert_eq!(args.files(Some("/a".as_ref()), home), [Path::new("/c")]);
        let error = ClusterConfigError::Missing(vec!["/a".into(), "/b".into()]);
        assert_eq!(
            error.to_string(),
            "there is no kubeconfig: none of these exists: /a, /b"
        );
    }
}
