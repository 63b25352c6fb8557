//! RBAC as the API server evaluates it, of the roles in `deploy/kubernetes/base` and a few for tests.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use crate::support::{documents, parse};

/// A user who is authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        }
    }

    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        Self::named(&format!("system:serviceaccount:{namespace}:{name}"))
    }
}

/// A request, as far as RBAC sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        /// With `/SUBRESOURCE`.
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Url {
        verb: &'a str,
        path: &'a str,
    },
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    cluster_roles: Vec<ClusterRole>,
    cluster_bindings: Vec<ClusterRoleBinding>,
    roles: Vec<Role>,
    bindings: Vec<RoleBinding>,
}

impl Rbac {
    pub(crate) fn of(texts: &[&str]) -> Self {
        let mut rbac = Self::default();
        for object in texts.iter().flat_map(|text| documents(text)) {
            match object["kind"].as_str() {
                Some("ClusterRole") => rbac.cluster_roles.push(parse(object)),
                Some("ClusterRoleBinding") => rbac.cluster_bindings.push(parse(object)),
                Some("Role") => rbac.roles.push(parse(object)),
                Some("RoleBinding") => rbac.bindings.push(parse(object)),
                _ => {}
            }
        }
        rbac
    }

    pub(crate) fn allows(&self, user: &User, action: Action<'_>) -> bool {
        let everywhere = self.cluster_bindings.iter().any(|it| {
            names(it.subjects.as_deref(), user)
                && self
                    .rules(&it.role_ref, "")
                    .iter()
                    .any(|it| matches(it, action))
        });
        let Action::Resource { namespace, .. } = action else {
            return everywhere;
        };
        everywhere
            || self.bindings.iter().any(|it| {
                let own = it.metadata.namespace.as_deref().unwrap_or_default();
                own == namespace
                    && names(it.subjects.as_deref(), user)
                    && self
                        .rules(&it.role_ref, own)
                        .iter()
                        .any(|it| matches(it, action))
            })
    }

    fn rules(&self, role: &RoleRef, namespace: &str) -> &[PolicyRule] {
        let rules = match role.kind.as_str() {
            "ClusterRole" => {
                let roles = &mut self.cluster_roles.iter();
                let found = roles.find(|it| it.metadata.name.as_deref() == Some(&role.name));
                found.and_then(|it| it.rules.as_deref())
            }
            _ => {
                let roles = &mut self.roles.iter();
                let found = roles.find(|it| {
                    it.metadata.name.as_deref() == Some(&role.name)
                        && it.metadata.namespace.as_deref() == Some(namespace)
                });
                found.and_then(|it| it.rules.as_deref())
            }
        };
        rules.unwrap_or_else(|| panic!("no rules in {role:?}"))
    }
}

fn names(subjects: Option<&[Subject]>, user: &User) -> bool {
    subjects
        .unwrap_or_default()
        .iter()
        .any(|it| match it.kind.as_str() {
            "ServiceAccount" => {
                let namespace = it.namespace.as_deref().unwrap_or_default();
                user.name == User::account(namespace, &it.name).name
            }
            "Group" => user.groups.contains(&it.name),
            _ => user.name == it.name,
        })
}

fn matches(rule: &PolicyRule, action: Action<'_>) -> bool {
    let has = |list: Option<&Vec<String>>, what: &str| {
        list.is_some_and(|list| list.iter().any(|it| it == what || it == "*"))
    };
    match action {
        Action::Resource {
            verb,
            group,
            resource,
            name,
            ..
        } => {
            let names = rule.resource_names.as_ref().filter(|it| !it.is_empty());
            has(Some(&rule.verbs), verb)
                && has(rule.api_groups.as_ref(), group)
                && has(rule.resources.as_ref(), resource)
                && names.is_none_or(|names| names.iter().any(|it| it == name))
        }
        Action::Url { verb, path } => {
            let urls = rule.non_resource_urls.as_deref().unwrap_or_default();
            has(Some(&rule.verbs), verb)
                && urls.iter().any(|it| match it.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => path == it,
                })
        }
    }
}
