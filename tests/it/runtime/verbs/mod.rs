//! The built-in runtime from outside: the real program over its CRI socket, with runc, a CNI bridge and an imported
//! image. Needs root and the Debian packages runc, containernetworking-plugins, iptables and busybox-static.

mod apparmor;
mod cadvisor;
mod cgroups;
mod checkpoints;
mod classes;
mod containerd_shim;
mod containers;
mod devices;
mod ends;
mod events;
mod exec;
mod full_disk;
mod handlers;
mod hang;
mod hang_up;
mod hooks;
mod hostile;
mod images;
mod live_handlers;
mod log_links;
mod old_shim;
mod pods;
mod reload;
mod restart;
mod security;
mod sessions;
mod shared_pid;
mod sharing;
mod telling;
mod updates;
mod user_namespaces;
mod verbose;
