//! The built-in runtime.

use super::super::Case;
use super::{
    asked, callers, cni, containers, ends, events, healthy, images, oci, probes, requests, several,
    starts,
};

pub(in super::super) fn all() -> Vec<Case> {
    let all = images::common()
        .into_iter()
        .chain(cni::common())
        .chain(oci::common())
        .chain(oci::own())
        .chain(asked::own())
        .chain(containers::common())
        .chain(probes::common())
        .chain(events::common())
        .chain(events::own())
        .chain(healthy::common())
        .chain(callers::common())
        .chain(requests::common())
        .chain(several::common())
        .chain(starts::common())
        .chain(ends::common());
    all.map(|case| case.own()).collect()
}
