//! System calls that no library wraps safely. All `unsafe` of the runtime is here.
