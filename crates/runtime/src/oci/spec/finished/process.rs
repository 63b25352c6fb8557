//! The process of a container: arguments, environment, limits, and all ids.

use std::collections::HashSet;

use super::{FinishedSpec, Violation, violation};
use crate::oci::spec::process::check_arguments;

/// Arguments, environment, limits and `oomScoreAdj` are well formed.
pub(super) fn check(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let Some(process) = finished.process() else {
        return violation("process", "it is missing");
    };
    let args = process.args().as_deref().unwrap_or_default();
    if args.first().is_none_or(String::is_empty) {
        return violation("process.args", "no command");
    }
    if let Err(error) = check_arguments(args) {
        return violation("process.args", error.to_string());
    }
    check_env(finished)?;
    if process
        .oom_score_adj()
        .is_some_and(|score| !(-1000..=1000).contains(&score))
    {
        return violation("process.oomScoreAdj", "not from -1000 to 1000");
    }
    let limits = process.rlimits().as_deref().unwrap_or_default();
    for (number, limit) in limits.iter().enumerate() {
        let field = format!("process.rlimits[{number}]");
        if limit.soft() > limit.hard() {
            return violation(field, "the soft limit is above the hard one");
        }
        if limits[..number]
            .iter()
            .any(|other| other.typ() == limit.typ())
        {
            return violation(field, "it is there twice");
        }
    }
    Ok(())
}

/// Variables that the request does not have have the form `name=value`. Its own are checked before, and entries of an image without `=`
/// is left to the OCI runtime.
fn check_env(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let requested = finished.requested_process();
    let requested = requested.and_then(|process| process.env().as_ref());
    let requested: HashSet<&String> = requested.into_iter().flatten().collect();
    let env = finished
        .process()
        .and_then(|process| process.env().as_ref());
    for (number, entry) in env.into_iter().flatten().enumerate() {
        let named = entry.find('=').is_some_and(|at| at > 0);
        if !requested.contains(entry) && (!named || entry.contains('\0')) {
            let field = format!("process.env[{number}]");
            return violation(field, "not of the form name=value");
        }
    }
    Ok(())
}

/// No id is the highest number, which the kernel takes for "no change".
pub(super) fn check_ids(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let Some(process) = finished.process() else {
        return Ok(());
    };
    let user = process.user();
    let groups = user.additional_gids().iter().flatten();
    let groups = groups.map(|group| ("process.user.additionalGids", *group));
    let own = [
        ("process.user.uid", user.uid()),
        ("process.user.gid", user.gid()),
    ];
    let devices = finished.linux().and_then(|linux| linux.devices().as_ref());
    let owners = devices.into_iter().flatten().flat_map(|device| {
        let owner = [
            ("linux.devices.uid", device.uid()),
            ("linux.devices.gid", device.gid()),
        ];
        owner
            .into_iter()
            .filter_map(|(field, id)| Some((field, id?)))
    });
    let mut all = own.into_iter().chain(groups).chain(owners);
    match all.find(|(_, id)| *id == u32::MAX) {
        Some((field, id)) => violation(field, format!("{id} is no id")),
        None => Ok(()),
    }
}
