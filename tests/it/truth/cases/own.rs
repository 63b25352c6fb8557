//! The built-in runtime.

use super::super::Case;
use super::{cni, containers, healthy, images, oci};

pub(in super::super) fn all() -> Vec<Case> {
    let all = images::common()
        .into_iter()
        .chain(cni::common())
        .chain(oci::common())
        .chain(oci::own())
        .chain(containers::common())
        .chain(healthy::common());
    all.map(|case| case.own()).collect()
}
