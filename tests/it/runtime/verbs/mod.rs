//! The built-in runtime from outside: the real program over its CRI socket, with runc, a CNI bridge and an image that was
//! imported. Needs root and the Debian packages runc, containernetworking-plugins, iptables and busybox-static.

mod containers;
mod exec;
mod handlers;
mod hang;
mod hang_up;
mod pods;
mod restart;
mod security;
mod sharing;
mod telling;
