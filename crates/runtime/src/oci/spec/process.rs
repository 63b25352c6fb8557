//! The process of a container: arguments, environment, working directory, user, privileges.

use std::collections::HashMap;
use std::path::PathBuf;

use oci_spec::runtime::{Process, Spec, User};

use super::build::Request;
use super::capabilities::capabilities;
use super::error::SpecError;
use super::facts::ImageConfig;
use super::labels;
use super::resources::restricted_oom_score_adj;
use super::user::ResolvedUser;
use criscope_cri::v1::ContainerConfig;

/// The `PATH` of a container whose image has none, and of a hook without an environment.
pub(super) const DEFAULT_PATH: &str =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The process of the specification.
pub(super) fn process(request: &Request<'_>, user: &ResolvedUser) -> Result<Process, SpecError> {
    let container = request.container;
    let context = request.context();
    let ulimits = &request.node.policy.default_ulimits;
    let mut process = Process::default();
    process
        .set_terminal(Some(container.tty))
        .set_user(oci_user(user))
        .set_args(Some(arguments(container, request.image)?))
        .set_env(Some(environment(request)?))
        .set_cwd(directory(container, request.image)?)
        .set_capabilities(Some(capabilities(context, request.node)))
        // The CRI has no field for them. Others are inherited.
        .set_rlimits(Some(ulimits.clone()).filter(|limits| !limits.is_empty()))
        .set_no_new_privileges(Some(context.no_new_privs))
        .set_apparmor_profile(labels::apparmor_profile(
            context,
            request.node,
            request.host,
        )?)
        .set_selinux_label(labels::selinux_label(
            context.selinux_options.as_ref(),
            context.privileged,
            request.sandbox.process_label.as_deref(),
            request.node,
        )?)
        .set_oom_score_adj(oom_score_adj(request)?);
    Ok(process)
}

/// The groups are in the order in which Linux keeps them: gVisor keeps the order of the specification, and a container would see another
/// than with runc.
fn oci_user(user: &ResolvedUser) -> User {
    let mut groups = user.groups.clone();
    groups.sort_unstable();
    let mut to = User::default();
    to.set_uid(user.uid)
        .set_gid(user.gid)
        .set_additional_gids(Some(groups));
    to
}

/// The arguments: the command of the request overrides the image's `Entrypoint` and `Cmd`; its arguments override `Cmd`.
fn arguments(container: &ContainerConfig, image: &ImageConfig) -> Result<Vec<String>, SpecError> {
    let (command, args) = match (container.command.is_empty(), container.args.is_empty()) {
        (true, true) => (&image.entrypoint, &image.cmd),
        (true, false) => (&image.entrypoint, &container.args),
        (false, _) => (&container.command, &container.args),
    };
    let all: Vec<String> = command.iter().chain(args).cloned().collect();
    if all.first().is_none_or(String::is_empty) {
        let name = &image.name;
        return Err(SpecError::Invalid(format!(
            "no command specified: neither the container nor image {name:?} has one"
        )));
    }
    check_arguments(&all)?;
    Ok(all)
}

/// Checks that no argument contains a NUL byte, at which crun would truncate it.
///
/// # Errors
/// [`SpecError::Invalid`] with the index of the argument only: its text may be secret.
pub fn check_arguments(arguments: &[String]) -> Result<(), SpecError> {
    match arguments.iter().position(|one| one.contains('\0')) {
        Some(place) => Err(SpecError::Invalid(format!(
            "argument {place} of the command has a zero byte"
        ))),
        None => Ok(()),
    }
}

/// The environment: `PATH`, `TERM` with a terminal, `HOSTNAME`, then the variables of the image and of the request. Later
/// variables replace earlier ones in place.
fn environment(request: &Request<'_>) -> Result<Vec<String>, SpecError> {
    let mut all = vec![DEFAULT_PATH.to_owned()];
    if request.container.tty {
        all.push("TERM=xterm".to_owned());
    }
    let hostname = &request.sandbox.hostname;
    // Records of older versions contain unchecked host names.
    if !hostname.is_empty() && !hostname.contains(char::is_control) {
        all.push(format!("HOSTNAME={hostname}"));
    }
    let mut places = HashMap::new();
    for (place, one) in all.iter().enumerate() {
        places.insert(name_of(one).to_owned(), place);
    }
    for one in &request.image.env {
        if one.contains('\0') {
            let (name, image) = (name_of(one), &request.image.name);
            return Err(SpecError::Invalid(format!(
                "variable {name:?} of image {image:?} has a zero byte"
            )));
        }
        set_variable(&mut all, &mut places, one.clone());
    }
    for pair in &request.container.envs {
        // The error omits the value, which may be secret.
        let key = &pair.key;
        // The specification is JSON, which is UTF-8. With other bytes crun fails; runc replaces them with U+FFFD.
        let value = std::str::from_utf8(&pair.value).map_err(|_| {
            invalid_variable(
                key,
                "its value is not UTF-8, which OCI runtimes cannot pass on",
            )
        })?;
        if key.is_empty() || key.contains(['=', '\0']) {
            return Err(invalid_variable(
                key,
                "a name cannot be empty, or have `=` or a zero byte",
            ));
        }
        if value.contains('\0') {
            return Err(invalid_variable(key, "its value has a zero byte"));
        }
        set_variable(&mut all, &mut places, format!("{key}={value}"));
    }
    Ok(all)
}

/// Replaces the variable at its place in the environment, or appends it.
fn set_variable(all: &mut Vec<String>, places: &mut HashMap<String, usize>, pair: String) {
    if let Some(place) = places.get(name_of(&pair)) {
        all[*place] = pair;
    } else {
        places.insert(name_of(&pair).to_owned(), all.len());
        all.push(pair);
    }
}

fn invalid_variable(name: &str, why: &str) -> SpecError {
    SpecError::Invalid(format!("variable {name:?}: {why}"))
}

fn name_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

fn directory(container: &ContainerConfig, image: &ImageConfig) -> Result<PathBuf, SpecError> {
    let (requested, own) = (&container.working_dir, &image.working_dir);
    let path = match (requested.as_str(), own.as_str()) {
        ("", "") => "/",
        ("", own) => own,
        (requested, _) => requested,
    };
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(PathBuf::from(path));
    }
    let rule = "is not an absolute path";
    Err(SpecError::Invalid(match requested.as_str() {
        "" => format!(
            "working directory {path:?} of image {:?} {rule}",
            image.name
        ),
        _ => format!("working directory {path:?} {rule}"),
    }))
}

fn oom_score_adj(request: &Request<'_>) -> Result<Option<i32>, SpecError> {
    let Some(resources) = request.container.resources() else {
        return Ok(request.node.oom_score_adj_floor.map(|floor| floor.max(0)));
    };
    restricted_oom_score_adj(resources.oom_score_adj, request.node.oom_score_adj_floor).map(Some)
}

/// The process of an exec: the container's with another command. `None` if the specification has no process.
pub fn exec_process(spec: &Spec, command: Vec<String>, terminal: bool) -> Option<Process> {
    let mut process = spec.process().clone()?;
    if terminal {
        let env = process.env_mut().get_or_insert_with(Vec::new);
        if !env.iter().any(|one| one.starts_with("TERM=")) {
            env.push("TERM=xterm".to_owned());
        }
    }
    process.set_args(Some(command)).set_terminal(Some(terminal));
    // An exec inherits the value: lowering it needs a capability that the daemon may lack.
    process.set_oom_score_adj(None);
    Some(process)
}
