//! Contrast of colours in both schemes, by WCAG 2.2: 1.4.3 (text) and 1.4.11 (graphics), at level AA.

use std::collections::HashMap;

use super::page::STYLE;

type ColourScheme = HashMap<String, [f64; 3]>;

/// The custom properties of the light scheme, and those of the dark one.
fn schemes() -> [ColourScheme; 2] {
    let (light, dark) = STYLE
        .split_once("@media (prefers-color-scheme:dark){:root{")
        .expect("a dark scheme");
    let dark = dark.split_once('}').expect("its end").0;
    let light = light.split_once(":root{").expect("a light scheme").1;
    [properties(light), properties(dark)]
}

fn properties(block: &str) -> ColourScheme {
    let block = block.split('}').next().unwrap_or_default();
    block
        .split(';')
        .filter_map(|line| {
            let (name, value) = line.trim().split_once(':')?;
            let hex = value.strip_prefix('#').filter(|hex| hex.len() == 6)?;
            let channels = [0, 2, 4].map(|at| {
                let number = u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
                f64::from(number) / 255.0
            });
            Some((name.strip_prefix("--")?.to_owned(), channels))
        })
        .collect()
}

/// Relative luminance (WCAG 2.2).
fn luminance(colour: [f64; 3]) -> f64 {
    let [r, g, b] = colour.map(|c| {
        if c <= 0.04045 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn check(what: &str, foregrounds: &[&str], backgrounds: &[&str], least: f64) {
    for (scheme, name) in schemes().iter().zip(["light", "dark"]) {
        for foreground in foregrounds {
            for background in backgrounds {
                let ratio = contrast(scheme[*foreground], scheme[*background]);
                assert!(
                    ratio >= least,
                    "{name}: {what} {foreground} on {background} is {ratio:.2}, below {least}"
                );
            }
        }
    }
}

#[test]
fn the_formula_is_that_of_wcag() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    // #767676 on white is the known limit.
    let grey = f64::from(0x76_u8) / 255.0;
    assert!((contrast([grey; 3], [1.0; 3]) - 4.54).abs() < 0.01);
}

#[test]
fn text_can_be_read() {
    let text = ["text", "muted", "link", "bad", "warn", "good"];
    check("text", &text, &["bg", "surface"], 4.5);
    check("text", &["text", "muted", "link"], &["raised"], 4.5);
    check(
        "text",
        &["text", "muted", "link", "warn", "bad"],
        &["warn-bg"],
        4.5,
    );
    check("text", &["text", "bad", "warn", "link"], &["bad-bg"], 4.5);
}

#[test]
fn bars_and_outlines_can_be_seen() {
    let phases = [
        "sandbox", "network", "pull", "create", "start", "init", "hook", "cstop", "sstop",
        "cremove", "sremove", "outside", "other",
    ];
    check("a bar in", &phases, &["surface", "bg"], 3.0);
    check("texture", &["hatch"], &phases, 3.0);
    check(
        "the texture of back-off in",
        &["backoff"],
        &["surface", "bg"],
        3.0,
    );
    check(
        "an outline in",
        &["focus", "muted", "bad", "warn"],
        &["surface", "bg"],
        3.0,
    );
}

#[test]
fn no_colour_stands_outside_the_palette() {
    let palette = STYLE.matches('#').count();
    let listed: usize = schemes().iter().map(HashMap::len).sum();
    let ids = STYLE.matches("url(#").count() + STYLE.matches("#refresh").count();
    assert_eq!(
        palette,
        listed + ids,
        "colours are written as custom properties"
    );
}
