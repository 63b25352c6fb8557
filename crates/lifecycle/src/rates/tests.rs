//! Rates of methods over windows of time.

use super::*;
use criscope_telemetry::Registry;
use criscope_telemetry::metric::{Label, Metric, Unit, label, metrics};

const METHOD: Label = label::<Method>("method");

// They have the labels of the metrics of the request path.
metrics! {
    RPC_DURATION = Metric::histogram("rpc_duration_seconds", Unit::Seconds, &[METHOD, label::<Ending>("outcome")],
        CALL_BUCKETS, "Duration of calls.");
    RPC_ROUTINE = Metric::counter("rpc_routine_total", &[METHOD, label::<Code>("code")], "Routine errors.");
}

fn rates() -> CallRates {
    let registry = Registry::new(prometheus::Registry::new(), []);
    let durations = registry.histograms(&RPC_DURATION);
    let routine = registry.counters(&RPC_ROUTINE).expect("once");
    CallRates::new(Arc::new(durations.expect("once")), Arc::new(routine))
}

fn observe(rates: &CallRates, method: Method, ending: Ending, seconds: f64, times: usize) {
    (0..times).for_each(|_| rates.durations.observe((method, ending), seconds));
}

/// Takes the snapshots due in these seconds.
fn pass(rates: &CallRates, seconds: std::ops::RangeInclusive<u64>) {
    for second in seconds.filter(|s| *s > 0 && s.is_multiple_of(5)) {
        rates.step(rates.started + Duration::from_secs(second));
    }
}

fn at(rates: &CallRates, second: u64, method: Method) -> MethodRates {
    let figures = rates.figures_at(rates.started + Duration::from_secs(second));
    let found = figures.into_iter().find(|f| f.method == method);
    found.expect("it was called")
}

#[test]
fn minute_hour_and_all_are_told_apart() {
    let rates = rates();
    assert_eq!(rates.figures(), []);
    let pull = Method::PullImage;
    observe(&rates, pull, Ending::Ok, 2.0, 3);
    let young = at(&rates, 3, pull);
    assert_eq!(
        (young.minute.calls, young.hour.calls, young.all.calls),
        (3, 3, 3)
    );
    assert_eq!(young.minute.time, Duration::from_secs(3));
    pass(&rates, 1..=1000);
    observe(&rates, pull, Ending::Error, 2.0, 5);
    observe(&rates, pull, Ending::Cancelled, 2.0, 1);
    pass(&rates, 1001..=1030);
    let now = at(&rates, 1032, pull);
    assert_eq!((now.minute.calls, now.hour.calls, now.all.calls), (6, 9, 9));
    assert_eq!((now.minute.errors, now.minute.cancelled), (5, 1));
    pass(&rates, 1031..=5000);
    let later = at(&rates, 5000, pull);
    assert_eq!(
        (later.minute.calls, later.hour.calls, later.all.calls),
        (0, 0, 9)
    );
    assert_eq!(later.minute.quantiles, [None; 3]);
    assert_eq!(later.all.time, Duration::from_secs(5000));
}

/// A healthy node: the kubelet asks about containers that it has just removed.
#[test]
fn routine_errors_are_no_errors() {
    let rates = rates();
    let status = Method::ContainerStatus;
    observe(&rates, status, Ending::Ok, 0.001, 100);
    observe(&rates, status, Ending::Error, 0.001, 36);
    rates.routine.inc_by((status, Code::NotFound), 35);
    let all = at(&rates, 1, status).all;
    assert_eq!((all.calls, all.errors, all.routine), (136, 1, 35));
}

/// A method that is called for the first time counts from zero, even if its older snapshots hold other counts.
#[test]
fn windows_are_as_long_as_they_say() {
    let rates = rates();
    let mut said = Vec::new();
    for second in 1..=7300 {
        observe(&rates, Method::Version, Ending::Ok, 0.001, 1);
        pass(&rates, second..=second);
        if second % 97 == 0 {
            let figures = at(&rates, second, Method::Version);
            for (within, whole, most) in [(figures.minute, 60, 65), (figures.hour, 3600, 3660)] {
                let time = within.time.as_secs();
                assert_eq!(within.calls, time, "one each second");
                assert!(
                    time >= whole.min(second) && time <= most,
                    "{second}: {time}"
                );
            }
            said.push(figures.all.calls);
        }
    }
    assert_eq!(said.last(), Some(&7275));
}

#[test]
fn quantiles_are_those_of_prometheus() {
    let rates = rates();
    let status = Method::Status;
    observe(&rates, status, Ending::Ok, 0.0004, 90);
    observe(&rates, status, Ending::Ok, 0.07, 8);
    observe(&rates, status, Ending::Error, 5000.0, 2);
    let quantiles = at(&rates, 1, status)
        .all
        .quantiles
        .map(|q| q.expect("some"));
    let millis = quantiles.map(|q| (q.as_secs_f64() * 1e6).round() / 1e3);
    // 50 of 90 in the first bucket; 5 of 8 between 50 and 100 ms; beyond the last bound of ten minutes.
    assert_eq!(millis, [0.278, 81.25, 600_000.0]);
}

#[test]
fn memory_is_what_the_documentation_says() {
    assert!(
        size_of::<MethodSnapshots>() <= 7 << 10,
        "{}",
        size_of::<MethodSnapshots>()
    );
}
