//! Classes on nodes whose resctrl is a directory.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;

use super::*;

/// A resource of `info`, the form of its ids in the root's schemata, and its files.
type Info = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const L3: Info = (
    "L3",
    "L3:0=fffff;1=fffff",
    &[("cbm_mask", "fffff\n"), ("min_cbm_bits", "1\n")],
);
const MB: Info = ("MB", "    MB:0=100;1=100", &[("min_bandwidth", "10\n")]);

fn resctrl(resources: &[Info]) -> TempDir {
    let root = tempfile::tempdir().expect("made");
    let mut schemata = String::new();
    for (name, line, files) in resources {
        let info = root.path().join("info").join(name);
        fs::create_dir_all(&info).expect("made");
        for (file, text) in *files {
            fs::write(info.join(file), text).expect("written");
        }
        schemata += &format!("{line}\n");
    }
    fs::write(root.path().join("schemata"), schemata).expect("written");
    root
}

fn planned(text: &str, resources: &[Info], mbps: bool) -> Result<BTreeMap<String, String>, String> {
    let root = resctrl(resources);
    let file = RdtFile::parse(text).map_err(|error| error.to_string())?;
    let plan = Plan::new(file, &Resctrl::at(root.path(), mbps))?;
    Ok(plan.schemata)
}

#[test]
fn partitions_are_apart_and_classes_are_parts_of_them() {
    let text = "
options: # nothing is optional
partitions:
  exclusive:
    l3Allocation: \"60%\"
    mbAllocation: [\"100%\"]
    classes:
      gold:
  shared:
    l3Allocation:
      all: 40%
      1: {unified: 30%}
    mbAllocation: {all: [50%, 9MBps], 1: [\"80%\"]}
    classes:
      silver: {l3Allocation: 50%, mbAllocation: [50%]}
      bronze: {l3Allocation: {all: 20-50%, 0: \"0x6\"}, mbAllocation: {0: [10%]}}
      \"\": {l3Allocation: \"0-1\"}
";
    let planned = planned(text, &[L3, MB], false).expect("fits");
    let expected = [
        ("bronze", "L3:0=6000;1=6000\nMB:0=10;1=80\n"),
        ("gold", "L3:0=fff;1=fff\nMB:0=100;1=100\n"),
        // The numbers of its bits are relative to those of the partition.
        ("silver", "L3:0=f000;1=7000\nMB:0=25;1=40\n"),
        ("system/default", "L3:0=3000;1=3000\nMB:0=50;1=80\n"),
    ];
    let expected = expected.map(|(class, lines)| (class.to_owned(), lines.to_owned()));
    assert_eq!(planned, BTreeMap::from(expected));
}

#[test]
fn code_and_data_have_shares_of_their_own() {
    const CODE: Info = (
        "L2CODE",
        "L2CODE:4=ff;2=ff",
        &[("cbm_mask", "ff"), ("min_cbm_bits", "2")],
    );
    const DATA: Info = ("L2DATA", "L2DATA:4=ff;2=ff", &[]);
    let text = "
partitions:
  a:
    l2Allocation: {all: {unified: 50%, code: \"0-3\", data: \"4-7\"}}
    classes:
      a: {l2Allocation: {2: 1%, 4: {unified: 100%, code: 50%, data: 51-100%}}}
  b:
    l2Allocation: {all: {unified: 50%, code: \"4-7\", data: \"0-3\"}}
";
    let planned = planned(text, &[CODE, DATA], false).expect("fits");
    assert_eq!(planned["a"], "L2CODE:2=3;4=3\nL2DATA:2=30;4=c0\n");
}

#[test]
fn small_partitions_are_rounded_up_to_the_least_share() {
    const SMALL: Info = (
        "L3",
        "L3:0=ff",
        &[("cbm_mask", "ff"), ("min_cbm_bits", "2")],
    );
    let with = |percents: &[u64]| {
        let mut text = String::from("partitions:\n");
        for (at, percent) in percents.iter().enumerate() {
            text += &format!("  p{at}: {{l3Allocation: {percent}%, classes: {{c{at}: }}}}\n");
        }
        planned(&text, &[SMALL], false)
    };
    let planned = with(&[90, 1]).expect("fits");
    assert_eq!(
        (&*planned["c0"], &*planned["c1"]),
        ("L3:0=1f\n", "L3:0=60\n")
    );
    let planned = with(&[25, 25, 25, 25]).expect("fits");
    assert_eq!(
        (&*planned["c0"], &*planned["c3"]),
        ("L3:0=3\n", "L3:0=c0\n")
    );
    let error = with(&[20; 5]).expect_err("too many");
    assert!(error.contains("no bits are left"), "{error}");
    assert!(with(&[0]).is_err());
}

#[test]
fn bandwidth_is_in_the_unit_of_the_mount() {
    let text = "
partitions:
  a:
    mbAllocation: [\"50%\", \"1000MBps\"]
    classes:
      a: {mbAllocation: {0: [10%, 1500MBps], 1: [10%, 700MBps]}}
      b:
";
    let rates = planned(text, &[MB], true).expect("fits");
    assert_eq!(
        (&*rates["a"], &*rates["b"]),
        ("MB:0=1000;1=700\n", "MB:0=1000;1=1000\n")
    );
    let percents = planned(text, &[MB], false).expect("fits");
    assert_eq!(percents["a"], "MB:0=10;1=10\n", "the least that there is");
    let error = planned("partitions: {a: {mbAllocation: [50%]}}", &[MB], true);
    let error = error.expect_err("no MBps");
    assert!(
        error.starts_with("MB: partition \"a\": no value in MBps"),
        "{error}"
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let classes = |allocation: &str, classes: &str| {
        format!("partitions: {{a: {{{allocation}, classes: {{{classes}}}}}}}")
    };
    let two = |one: &str, other: &str| {
        format!("partitions: {{a: {{l3Allocation: {one}}}, b: {{{other}}}}}")
    };
    for (text, reason) in [
        ("partition: {}".to_owned(), "unknown field `partition`"),
        (
            "partitions: {a: {l4Allocation: 1%}}".to_owned(),
            "unknown field `l4Allocation`",
        ),
        (
            "partitions: {a: {l3Allocation: 101%}}".to_owned(),
            "\"101%\" is no share",
        ),
        (
            "partitions: {a: {l3Allocation: 5-4%}}".to_owned(),
            "\"5-4%\" is no share",
        ),
        (
            "partitions: {a: {l3Allocation: \"0x5\"}}".to_owned(),
            "\"0x5\" is not one block",
        ),
        (
            "partitions: {a: {l3Allocation: \"0x0\"}}".to_owned(),
            "\"0x0\" is not one block",
        ),
        (
            "partitions: {a: {l3Allocation: \"64\"}}".to_owned(),
            "\"64\" is no share",
        ),
        (
            "partitions: {a: {l3Allocation: {x: 1%}}}".to_owned(),
            "\"x\" is no list of numbers",
        ),
        (
            "partitions: {a: {l3Allocation: {0: {code: 1%}}}}".to_owned(),
            "missing field `unified`",
        ),
        (
            "partitions: {a: {mbAllocation: [1GBps]}}".to_owned(),
            "\"1GBps\" is no bandwidth",
        ),
        (
            "partitions: {a: {mbAllocation: 10%}}".to_owned(),
            "expected a sequence",
        ),
        (
            classes("l3Allocation: 50%", "..: "),
            "class \"..\" has not the name",
        ),
        (
            classes("l3Allocation: 50%", "a/b: "),
            "class \"a/b\" has not the name",
        ),
        (
            classes("l3Allocation: 50%", "a: {l2Allocation: 1%}"),
            "has l2Allocation, and partition \"a\"",
        ),
        (
            classes("l2Allocation: 50%", "a: {l2Allocation: 1%}"),
            "share of L2, which this node",
        ),
        (
            classes("l3Allocation: 50%", "a: {l3Allocation: \"10\"}"),
            "0x400 are not bits of 0x3ff",
        ),
        (
            classes("l3Allocation: 50%", "\"\": , system/default: "),
            "defined twice",
        ),
        (
            "partitions: {a: {classes: {x: }}, b: {classes: {x: }}}".to_owned(),
            "defined in two",
        ),
        (two("60%", "l3Allocation: 50%"), "all partitions have 110%"),
        (
            two("60%", "mbAllocation: [50%]"),
            "partition \"b\" has no share",
        ),
        (
            two("60%", "l3Allocation: \"0-1\""),
            "if one partition has a percentage",
        ),
        (two("1-60%", "l3Allocation: 5%"), "and no ranges"),
        (
            two("\"0-3\"", "l3Allocation: \"3-4\""),
            "partition \"b\" has bits of another one",
        ),
        (
            two("\"0-3\"", "l3Allocation: \"30\""),
            "are not bits of 0xfffff",
        ),
    ] {
        let error = planned(&text, &[L3, MB], false).expect_err(&text);
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    // A node without L2, on which that is allowed.
    let text = classes("l2Allocation: 50%", "a: {l2Allocation: 1%}");
    let text = format!("options: {{l2: {{optional: true}}}}\n{text}");
    let lines = planned(&text, &[L3], false).expect("optional");
    assert_eq!(lines["a"], "L3:0=fffff;1=fffff\n");
    assert!(planned("", &[], false).expect("nothing").is_empty());
}

#[test]
fn resctrl_is_found_in_the_table_of_mounts() {
    let line = "40 24 0:36 / /sys/fs/resctrl rw,nosuid shared:17 - resctrl resctrl rw,cdp,mba_MBps";
    let found = Resctrl::find_in_table(&format!("24 1 8:1 / / rw - ext4 /dev/sda rw\n{line}\n"));
    let found = found.expect("mounted");
    assert_eq!(found.root, Path::new("/sys/fs/resctrl"));
    assert!(format!("{found:?}").contains("mbps: true"), "{found:?}");
    let other = "40 24 0:36 / /x rw - tmpfs resctrl rw\n";
    assert!(Resctrl::find_in_table(other).is_none());
}

const TWO: &str = "
partitions:
  a:
    l3Allocation: 100%
    classes:
      gold: {l3Allocation: 50%, kubernetes: {denyPodAnnotation: true}}
      silver: {kubernetes: {denyContainerAnnotation: true}}
      system/default: {l3Allocation: 10%}
";

#[test]
fn classes_are_written_once_and_become_groups() {
    let root = resctrl(&[L3]);
    let file = root.path().join("rdt.yaml");
    let rdt = Rdt::new(Some(file.clone()));
    let find = || Ok(Some(Resctrl::at(root.path(), false)));
    let read = |name: &str| fs::read_to_string(root.path().join(name)).expect("there");

    // What failed is tried again.
    assert!(matches!(
        rdt.applied_on(|| Ok(None)),
        Err(RdtError::NotMounted)
    ));
    assert!(matches!(rdt.applied_on(find), Err(RdtError::File { .. })));
    fs::write(
        &file,
        "partitions: {a: {l2Allocation: 1%, classes: {x: {l2Allocation: 1%}}}}",
    )
    .expect("written");
    let error = rdt.applied_on(find).map(drop).expect_err("no L2");
    assert!(matches!(error, RdtError::Plan { .. }), "{error}");
    assert!(
        !root.path().join("x").exists(),
        "nothing is written before all fits"
    );

    fs::write(&file, TWO).expect("written");
    // A group of another program stays as it is.
    fs::create_dir(root.path().join("other")).expect("made");
    fs::write(root.path().join("other/tasks"), "").expect("written");
    let applied = rdt.applied_on(find).expect("written");
    assert_eq!(read("gold/schemata"), "L3:0=3ff;1=3ff\n");
    assert_eq!(read("silver/schemata"), "L3:0=fffff;1=fffff\n");
    assert_eq!(read("schemata"), "L3:0=3;1=3\n");
    for group in ["gold", "silver"] {
        fs::write(root.path().join(group).join("tasks"), "").expect("written");
    }
    fs::write(&file, "broken").expect("written");
    rdt.applied_on(|| unreachable!("it is done")).expect("kept");

    let group = |class: &str, origin| applied.group(class, origin, Some(&file));
    let (pod, container) = (Origin::Pod, Origin::Container);
    assert_eq!(
        group("gold", container).expect("allowed").as_deref(),
        Some("gold")
    );
    assert_eq!(
        group("silver", pod).expect("allowed").as_deref(),
        Some("silver")
    );
    assert_eq!(
        group("other", pod).expect("allowed").as_deref(),
        Some("other")
    );
    assert_eq!(group("system/default", pod).expect("allowed"), None);
    for (class, origin) in [("gold", pod), ("silver", container)] {
        let error = group(class, origin).expect_err("denied");
        assert!(matches!(error, RdtError::Denied { .. }), "{error}");
    }
    for class in ["lead", "..", ".", "gold/mon_groups", "info"] {
        let error = group(class, pod).expect_err("not defined");
        assert!(matches!(error, RdtError::Undefined { .. }), "{error}");
        let path = file.display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
    }
}

#[test]
fn a_reload_writes_what_has_changed_and_takes_back_what_fails() {
    let root = resctrl(&[L3]);
    let find = || Ok(Some(Resctrl::at(root.path(), false)));
    let read = |name: &str| fs::read_to_string(root.path().join(name)).expect("there");
    let file = |name: &str, classes: &str| {
        let path = root.path().join(name);
        let text = format!("partitions: {{all: {{l3Allocation: 100%, classes: {{{classes}}}}}}}");
        fs::write(&path, text).expect("written");
        path
    };
    let group = |rdt: &Rdt, class: &str| {
        let applied = rdt.applied_on(|| unreachable!("it is done"));
        let applied = applied.expect("written");
        applied.group(class, Origin::Pod, Some(Path::new("/file")))
    };
    let path = file("a.yaml", "x: {l3Allocation: 50%}, y: {l3Allocation: 100%}");
    let first = Rdt::new(Some(path.clone()));
    first.applied_on(find).expect("written");
    for group in ["x", "y"] {
        fs::write(root.path().join(group).join("tasks"), "").expect("written");
    }
    let (x, y) = (read("x/schemata"), read("y/schemata"));

    // What is the same is not written again: an administrator may have changed it by hand.
    fs::write(root.path().join("y/schemata"), "by hand").expect("written");
    file("a.yaml", "x: {l3Allocation: 20%}, y: {l3Allocation: 100%}");
    let second = first.after_on(Some(&path), find).expect("written");
    assert_ne!(read("x/schemata"), x);
    assert_eq!(read("y/schemata"), "by hand");
    let x = read("x/schemata");

    // The second group cannot be made, and the first has its shares back. The same of another file.
    fs::write(root.path().join("z"), "").expect("written");
    let classes = "x: {l3Allocation: 50%}, y: {l3Allocation: 100%}, z: {l3Allocation: 10%}";
    for path in [file("a.yaml", classes), file("b.yaml", classes)] {
        let error = second.after_on(Some(&path), find).expect_err("no group");
        assert!(matches!(error, RdtError::Group { .. }), "{error}");
        assert_eq!(read("x/schemata"), x);
    }
    fs::write(&path, "broken").expect("written");
    let error = second.after_on(Some(&path), find).expect_err("broken");
    assert!(matches!(error, RdtError::File { .. }), "{error}");
    assert_eq!(group(&second, "x").expect("kept").as_deref(), Some("x"));

    // Without a file there are no classes, and the groups stay.
    let none = second.after_on(None, find).expect("no file");
    assert!(matches!(
        none.applied_on(find),
        Err(RdtError::NotConfigured)
    ));
    assert_eq!(read("x/schemata"), x);
    // Nothing of a file that is broken on a node that had no classes.
    assert!(none.after_on(Some(&path), find).is_err());
    assert!(none.after_on(Some(&path), || Ok(None)).is_err());
    // What was broken before is tried again for each container, as without resctrl.
    let broken = Rdt::new(Some(path.clone()));
    let still = broken.after_on(Some(&path), find).expect("not worse");
    let path = file("a.yaml", "x: {l3Allocation: 50%}");
    assert_ne!(read("x/schemata"), y);
    still.applied_on(find).expect("mended");
    broken
        .after_on(Some(&path), || Ok(None))
        .expect("no resctrl");
}

#[test]
fn the_kernels_reason_is_told() {
    let root = resctrl(&[L3]);
    // In the place of the directory of a group.
    fs::write(root.path().join("gold"), "").expect("written");
    fs::write(root.path().join("info/last_cmd_status"), "Out of CLOSIDs\n").expect("written");
    let error = group::write(root.path(), "gold", "L3:0=1\n").expect_err("refused");
    let error = error.to_string();
    assert!(error.contains("gold/schemata: "), "{error}");
    assert!(error.ends_with(": Out of CLOSIDs"), "{error}");
}
