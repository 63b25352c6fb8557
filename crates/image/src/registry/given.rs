//! Which credentials a host gets.

use super::endpoint::Endpoint;
use super::registries_conf::Source;
use crate::credentials::{Auth, Credentials, host_of};
use crate::reference::Reference;

/// The name under which credentials for a host are stored.
pub(super) fn known_as(name: &Reference, endpoint: &Endpoint) -> String {
    if endpoint.is_mirror {
        endpoint.host.clone()
    } else {
        name.registry().to_owned()
    }
}

/// The credentials of the request, if they are for this host. Those of a registry are sent to what takes its place, and not to
/// its mirrors.
pub(super) fn given(
    name: &Reference,
    source: &Source,
    endpoint: &Endpoint,
    auth: Option<&Auth>,
) -> Option<Credentials> {
    let auth = auth?;
    let host = known_as(&source.name, endpoint);
    let is_registry = source.is_primary && !endpoint.is_mirror;
    let is_for_it = match &auth.server {
        None => is_registry,
        Some(server) => {
            let is_host = *server == host || host_of(&endpoint.host).as_ref() == Some(server);
            is_host || (is_registry && server == name.registry())
        }
    };
    is_for_it.then(|| auth.credentials.clone())
}
