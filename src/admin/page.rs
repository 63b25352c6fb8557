//! Plain HTML that works offline, without scripts, in light and dark.

use std::fmt::{self, Display, Write as _};

use axum::response::Html;

const STYLE: &str = "\
:root{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif}\
body{margin:2rem auto;max-width:90rem;padding:0 1rem}\
h1{font-size:1.3rem}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8885;vertical-align:top}\
th{font-weight:600}\
.n{text-align:right;font-variant-numeric:tabular-nums}\
code{font-family:ui-monospace,monospace;font-size:.9em}\
.late{color:#c62828;font-weight:600}\
@media (prefers-color-scheme:dark){.late{color:#ff8a80}}";

/// A whole page. `body` is HTML.
pub fn page(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} - criscope</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n{body}\n</body></html>\n",
        title = Escaped(title),
    ))
}

/// Text fit for HTML, attributes included.
#[derive(Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The front page.
pub async fn index() -> Html<String> {
    page(
        "criscope",
        "<ul>\
         <li><a href=\"/debug/calls\">calls in flight</a></li>\
         <li><a href=\"/debug/rpcz\">calls by method</a></li>\
         <li><a href=\"/debug/tracez\">samples of calls</a></li>\
         <li><a href=\"/debug/flight\">flight recorder</a></li>\
         <li><a href=\"/debug/backends\">backends</a></li>\
         <li><a href=\"/debug/routes\">routes</a></li>\
         <li><a href=\"/debug/config\">settings in effect</a></li>\
         <li><a href=\"/readyz?verbose\">readiness</a></li>\
         <li><a href=\"/metrics\">metrics</a></li>\
         <li><a href=\"/debug/log-level\">log level</a></li>\
         </ul>",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_stays_text() {
        let escaped = Escaped("<a href=\"x\">&'").to_string();
        assert_eq!(escaped, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
