//! What a pull costs without a runtime: `curl | tar` unpacks all layers and checks nothing, the same with digests computes both
//! digests of each layer, as a runtime must, and skopeo checks the digests and unpacks nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, IoContext, Result};
use crate::process::find;
use crate::shapes::Image;

/// Three layers at a time, like the runtimes.
const UNPACK: &str = r#"printf '%s\n' $LAYERS | xargs -P 3 -I @ sh -c '
    mkdir "$1" && curl --fail --silent "$0" | tar --extract --use-compress-program="$PROGRAM" --directory "$1"
' "$URL/@" "$DIR/@""#;

/// The same, and the digests of what is fetched and of what is unpacked. OpenSSL uses the processor's instructions for SHA-256, which
/// sha256sum does not in Debian.
const UNPACK_HASHED: &str = r#"printf '%s\n' $LAYERS | xargs -P 3 -I @ sh -ec '
    mkdir "$1" && mkfifo "$1.in" "$1.out"
    openssl dgst -sha256 <"$1.in" >"$1.fetched" &
    openssl dgst -sha256 <"$1.out" >"$1.unpacked" &
    curl --fail --silent "$0" | tee "$1.in" | "$PROGRAM" --decompress --stdout | tee "$1.out" | tar --extract --directory "$1"
    wait
' "$URL/@" "$DIR/@""#;

/// A floor, and its directory.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Its name in the report.
    pub(crate) name: &'static str,
    kind: Kind,
    dir: PathBuf,
}

#[derive(Debug)]
enum Kind {
    CurlTar,
    CurlTarHashed,
    Skopeo,
}

/// The names of the floors that unpack.
pub(crate) const CURL_TAR: &str = "curl, tar";
pub(crate) const CURL_TAR_HASHED: &str = "curl, tar, digests";

impl Floor {
    /// All floors.
    ///
    /// # Errors
    /// If a program is not installed.
    pub(crate) fn all(dir: &Path) -> Result<Vec<Self>> {
        for program in ["curl", "tar", "gzip", "zstd", "openssl", "skopeo"] {
            find(program, program)?;
        }
        let floor = |name, kind| Self {
            name,
            kind,
            dir: dir.to_owned(),
        };
        Ok(vec![
            floor(CURL_TAR, Kind::CurlTar),
            floor(CURL_TAR_HASHED, Kind::CurlTarHashed),
            floor("skopeo", Kind::Skopeo),
        ])
    }

    /// Fetches an image once.
    ///
    /// # Errors
    /// If a program fails.
    pub(crate) fn fetch(&self, image: &Image, registry: &str) -> Result<Duration> {
        fs::create_dir_all(&self.dir).during(|| format!("making {}", self.dir.display()))?;
        let mut command = match self.kind {
            Kind::CurlTar | Kind::CurlTarHashed => {
                let mut command = Command::new("sh");
                let url = format!("http://{registry}/v2/{}/blobs", image.repository);
                let script = match self.kind {
                    Kind::CurlTarHashed => UNPACK_HASHED,
                    _ => UNPACK,
                };
                command
                    .args(["-ec", script])
                    .env("LAYERS", image.layers.join(" "))
                    .env("PROGRAM", image.compression.name())
                    .env("URL", url)
                    .env("DIR", &self.dir);
                command
            }
            Kind::Skopeo => {
                let mut command = Command::new("skopeo");
                command
                    .args([
                        "--insecure-policy",
                        "copy",
                        "--quiet",
                        "--src-tls-verify=false",
                    ])
                    .arg(format!("docker://{registry}/{}:1", image.repository))
                    .arg(format!("dir:{}", self.dir.display()));
                command
            }
        };
        let begun = Instant::now();
        let output = command
            .stdin(Stdio::null())
            .output()
            .during(|| format!("starting {}", self.name))?;
        let took = begun.elapsed();
        fs::remove_dir_all(&self.dir).during(|| format!("removing {}", self.dir.display()))?;
        if output.status.success() {
            return Ok(took);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(Error::Setup(format!("{}: {errors}", self.name)))
    }
}
