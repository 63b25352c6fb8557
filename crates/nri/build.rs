//! Compiles `proto/nri.proto` with protox, so that no `protoc` has to be installed.

/// The messages with the form of an object of the OCI runtime specification, which runtimes read and write as JSON.
const OBJECTS: [&str; 19] = [
    "HugepageLimit",
    "Hook",
    "Hooks",
    "LinuxCPU",
    "LinuxContainer",
    "LinuxDevice",
    "LinuxDeviceCgroup",
    "LinuxMemory",
    "LinuxNamespace",
    "LinuxNetDevice",
    "LinuxPids",
    "LinuxRdt",
    "LinuxResources",
    "LinuxSeccomp",
    "LinuxSeccompArg",
    "LinuxSyscall",
    "Mount",
    "POSIXRlimit",
    "User",
];

/// The messages around a single value, which the specification has without them.
const VALUES: [&str; 8] = [
    "OptionalBool",
    "OptionalFileMode",
    "OptionalInt",
    "OptionalInt64",
    "OptionalRepeatedString",
    "OptionalString",
    "OptionalUInt32",
    "OptionalUInt64",
];

/// What differs in a field from the specification: its name, that it is left out when it is empty, or that there is none.
const FIELDS: [(&str, &str); 22] = [
    ("Hook.args", "skip_serializing_if = \"Vec::is_empty\""),
    ("Hook.env", "skip_serializing_if = \"Vec::is_empty\""),
    (
        "LinuxCPU.cpus",
        "skip_serializing_if = \"String::is_empty\"",
    ),
    (
        "LinuxCPU.mems",
        "skip_serializing_if = \"String::is_empty\"",
    ),
    ("LinuxContainer.io_priority", "skip"),
    ("LinuxContainer.oom_score_adj", "skip"),
    ("LinuxContainer.rdt", "rename = \"intelRdt\""),
    ("LinuxContainer.scheduler", "skip"),
    ("LinuxContainer.seccomp_policy", "rename = \"seccomp\""),
    ("LinuxContainer.seccomp_profile", "skip"),
    (
        "LinuxMemory.disable_oom_killer",
        "rename = \"disableOOMKiller\"",
    ),
    ("LinuxMemory.kernel_tcp", "rename = \"kernelTCP\""),
    ("LinuxRdt.clos_id", "rename = \"closID\""),
    ("LinuxRdt.remove", "skip"),
    ("LinuxResources.blockio_class", "skip"),
    ("LinuxResources.rdt_class", "skip"),
    (
        "LinuxSeccomp.architectures",
        "skip_serializing_if = \"Vec::is_empty\"",
    ),
    ("LinuxSeccomp.default_errno", "rename = \"defaultErrnoRet\""),
    (
        "LinuxSeccomp.flags",
        "skip_serializing_if = \"Vec::is_empty\"",
    ),
    (
        "LinuxSeccomp.listener_metadata",
        "skip_serializing_if = \"String::is_empty\"",
    ),
    (
        "LinuxSeccomp.listener_path",
        "skip_serializing_if = \"String::is_empty\"",
    ),
    (
        "LinuxSyscall.args",
        "skip_serializing_if = \"Vec::is_empty\"",
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/nri.proto");
    let descriptors = protox::compile(["nri.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    // Messages hold environment values and annotations: none can be printed.
    config.btree_map(["."]).skip_debug(["."]);
    for (messages, form) in [
        (&OBJECTS[..], "default, rename_all = \"camelCase\""),
        (&VALUES[..], "transparent"),
    ] {
        for message in messages {
            let derived = "#[derive(serde::Serialize, serde::Deserialize)]";
            config.message_attribute(message, format!("{derived} #[serde({form})]"));
        }
    }
    for (field, form) in FIELDS {
        config.field_attribute(field, format!("#[serde({form})]"));
    }
    config.compile_fds(descriptors)?;
    Ok(())
}
