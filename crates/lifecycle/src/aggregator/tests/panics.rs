//! What a panic costs.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_check_and_not_the_stories() {
    let mut running = aggregator(None);
    // The next ticks panic when they read the calls in flight.
    let poisoned = Arc::clone(&running.in_flight);
    let poisons = std::thread::spawn(move || {
        let _guard = poisoned.lock().expect("lock");
        panic!("on purpose");
    });
    poisons.join().expect_err("a panic");
    sleep(Duration::from_secs(3)).await;
    let panics = || running.drops.count(DropReason::StoryPanic);
    assert!(panics() >= 2, "{}", panics());
    running.in_flight.clear_poison();
    let before = panics();
    running.start("web");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(panics(), before);
    assert_eq!(running.heard().len(), 1);
    running.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_the_start_costs_no_later_story() {
    let base = (Instant::now(), SystemTime::now());
    let reads = AtomicUsize::new(0);
    let clock = move || {
        assert!(reads.fetch_add(1, Ordering::Relaxed) > 1, "on purpose");
        base.1 + base.0.elapsed()
    };
    let mut running = with_clock(None, Arc::new(clock));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(running.drops.count(DropReason::StoryPanic), 2);
    running.start("web");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(running.heard().len(), 1);
    running.finish().await;
}
