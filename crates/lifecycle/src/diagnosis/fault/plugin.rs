//! Which CNI plugin an error text is about.

/// Returns whether the text names a CNI plugin, readable or not.
pub(crate) fn names_plugin(text: &str) -> bool {
    ["plugin type=", "failed to find plugin ", "CNI plugin "]
        .iter()
        .any(|before| text.contains(before))
}

/// The CNI plugin that failed, if the text names it: of plugins that call each other, the innermost.
pub(crate) fn plugin(text: &str) -> Option<String> {
    // The first error is the cause; what the rollback says comes after it.
    let cause = text.split("; the rollback failed").next()?;
    let named = [
        // libcni: containerd and CRI-O.
        ("plugin type=", &[" failed", " name="][..]),
        ("failed to find plugin ", &[" in path"]),
        // The built-in runtime.
        (
            "CNI plugin ",
            &[" ADD", " DEL", " CHECK", " STATUS", " GC", " was not found"],
        ),
        ("cannot run CNI plugin ", &[":"]),
    ];
    let found = named.iter().flat_map(|(before, after)| {
        cause.match_indices(before).filter_map(move |(at, _)| {
            let rest = cause[at + before.len()..].trim_start_matches(['"', '\\', '\'']);
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))?;
            let (name, rest) = rest.split_at(end);
            let rest = rest.trim_start_matches(['"', '\\', '\'']);
            let is_name = !name.is_empty() && after.iter().any(|it| rest.starts_with(it));
            is_name.then(|| (at, name.to_owned()))
        })
    });
    found.max_by_key(|(at, _)| *at).map(|(_, name)| name)
}
