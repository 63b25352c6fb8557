//! The order of processes that several scans have found.

use super::*;

/// A thread may have to wait between reading the boot clock and the wall clock.
#[test]
fn processes_are_in_the_order_of_their_starts_whatever_a_reading_of_the_clocks_took() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    node.plugin(200, "calico", DAEMON, "ADD", "s1", "cart");
    let now = ClockReading::now().expect("clock");
    let late = ClockReading {
        wall: now.wall + Duration::from_millis(100),
        ..now
    };
    scanner.scan_at(&calls, late).expect("scan");
    node.end(200);
    node.plugin(203, "portmap", DAEMON, "ADD", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&found, 1),
        ["in the CNI plugin calico", "in the CNI plugin portmap"]
    );
}
