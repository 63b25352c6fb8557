//! A home of GnuPG.

use std::io::Write as _;

use crate::runtime::image::*;

/// A home of GnuPG. Dropping it ends its agent.
pub(super) struct Gpg(TempDir);

impl Drop for Gpg {
    fn drop(&mut self) {
        let mut command = Command::new("gpgconf");
        command.arg("--homedir").arg(self.0.path());
        let _ = command.args(["--kill", "all"]).status();
    }
}

impl Gpg {
    pub(super) fn home(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("dir");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("mode");
        Self(dir)
    }

    pub(super) fn run(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut child = Command::new(program("gpg", "gpg"))
            .args(["--batch", "--yes", "--quiet", "--no-tty"])
            .args(["--pinentry-mode", "loopback", "--passphrase", ""])
            .arg("--homedir")
            .arg(self.0.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().expect("ended");
        let _ = writer.join().expect("joined");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gpg {arguments:?}: {errors}");
        output.stdout
    }

    /// Makes a key; returns its fingerprint.
    pub(super) fn key(&self, name: &str, kind: &[&str], options: &[&str]) -> String {
        let user = format!("{name} <{name}@example.com>");
        let arguments = [options, &["--quick-gen-key", &user], kind].concat();
        self.run(&arguments, b"");
        self.fingerprints(name).remove(0)
    }

    /// The fingerprints of a key and its subkeys.
    pub(super) fn fingerprints(&self, name: &str) -> Vec<String> {
        let listed = self.run(&["--with-colons", "--list-keys", name], b"");
        let listed = String::from_utf8(listed).expect("text");
        let lines = listed.lines().filter(|line| line.starts_with("fpr:"));
        lines
            .map(|line| line.trim_end_matches(':').rsplit(':').next().expect("one"))
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn export(&self, key: &str) -> Vec<u8> {
        self.run(&["--export", key], b"")
    }

    pub(super) fn sign(&self, key: &str, document: &[u8], options: &[&str]) -> Vec<u8> {
        let signer = format!("{key}!");
        let arguments = [options, &["--local-user", &signer, "--sign"]].concat();
        self.run(&arguments, document)
    }
}
