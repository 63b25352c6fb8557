//! criscope-shim: one small process per pod that reaps, writes logs, serves attach, and records exits. No async runtime.
