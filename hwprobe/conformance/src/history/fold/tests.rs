use super::*;

const MINUTE: u64 = 60_000;
const WINDOW: u64 = 10 * MINUTE;
/// A day in the year 2026.
const NOW: u64 = 1_795_000_000_000;

const RULE: RecordingLimit = RecordingLimit {
    share: "test",
    hourly: 5,
    burst: 1,
    window_ms: WINDOW,
    longest_ms: 4 * WINDOW,
};

fn take(fold: &mut EventFold<u64>, at: u64, key: &str) -> Option<FoldedLine<u64>> {
    fold.add_event(at, at, key.to_owned(), RULE, at)
}

#[test]
fn the_first_is_written_at_once_and_repeats_as_one_line_with_their_number() {
    let mut fold = EventFold::default();
    let first = take(&mut fold, NOW, "a").map(|folded| (folded.count, folded.at));
    assert_eq!(first, Some((1, NOW)));
    for n in 1..=5_000 {
        assert_eq!(take(&mut fold, NOW + n, "a"), None);
    }
    assert_eq!(fold.take_due_lines(NOW + WINDOW - 1), []);
    let due = fold.take_due_lines(NOW + WINDOW);
    let all = FoldedLine {
        what: NOW + 5_000,
        at: NOW + 5_000,
        first_at: NOW + 1,
        count: 5_000,
        left_out: 0,
    };
    assert_eq!(due, [all]);
    assert_eq!(
        fold.take_due_lines(NOW + WINDOW + 1),
        [],
        "nothing is told twice"
    );
}

#[test]
fn long_condition_is_recorded_less_often() {
    let mut fold = EventFold::default();
    let (mut recorded, mut lines, mut gaps) = (0, 0, Vec::new());
    let mut last = NOW;
    let days = 2 * 24 * 60;
    for minute in 0..days {
        let now = NOW + minute * MINUTE;
        let mut written: Vec<_> = take(&mut fold, now, "a").into_iter().collect();
        written.extend(fold.take_due_lines(now));
        for folded in written {
            recorded += u64::from(folded.count);
            lines += 1;
            gaps.push(now - last);
            last = now;
        }
    }
    recorded += fold
        .drain(NOW + days * MINUTE)
        .iter()
        .map(|f| u64::from(f.count))
        .sum::<u64>();
    assert_eq!(recorded, days);
    assert!(gaps.iter().all(|gap| *gap <= 4 * WINDOW), "{gaps:?}");
    assert!(lines < 80, "{lines} lines in two days");
}

#[test]
fn after_a_quiet_time_the_next_one_is_a_line_of_its_own_again() {
    let mut fold = EventFold::default();
    assert!(take(&mut fold, NOW, "a").is_some());
    assert_eq!(fold.take_due_lines(NOW + WINDOW), []);
    assert!(take(&mut fold, NOW + WINDOW + 1, "a").is_some());
}

#[test]
fn hourly_line_limit_defers_the_rest() {
    let mut fold = EventFold::default();
    let written = |fold: &mut EventFold<u64>, from: u64| {
        (0..60)
            .map(|minute| fold.take_due_lines(NOW + (from + minute) * MINUTE).len())
            .sum::<usize>()
    };
    let first = (0..100).filter_map(|n| take(&mut fold, NOW + n, &format!("key {n}")));
    assert_eq!(first.count(), RULE.hourly);
    assert_eq!(written(&mut fold, 0), 0, "its hour is over");
    assert_eq!(written(&mut fold, 60), RULE.hourly);
    // Another share has its own limit.
    let other = RecordingLimit {
        share: "other",
        ..RULE
    };
    let now = NOW + 61 * MINUTE;
    assert!(fold.add_event(now, now, "x".to_owned(), other, 1).is_some());
}

#[test]
fn more_kinds_of_things_than_are_followed_are_counted() {
    let mut fold = EventFold::default();
    for n in 0..MAX_KEYS + 40 {
        take(&mut fold, NOW, &format!("key {n}"));
    }
    assert_eq!(fold.open.len(), MAX_KEYS);
    let later = NOW + HOUR_MS + 1;
    let due = fold.take_due_lines(later);
    assert_eq!(due[0].left_out, 40);
    assert!(due[1..].iter().all(|folded| folded.left_out == 0));
}

#[test]
fn a_share_that_is_full_takes_no_room_from_another() {
    let mut fold = EventFold::default();
    for n in 0..MAX_KEYS + 40 {
        take(&mut fold, NOW, &format!("key {n}"));
    }
    let other = RecordingLimit {
        share: "other",
        ..RULE
    };
    let added = fold.add_event(NOW, NOW, "x".to_owned(), other, 7);
    assert_eq!(
        added.map(|folded| (folded.what, folded.left_out)),
        Some((7, 0))
    );
    assert_eq!(take(&mut fold, NOW, "x"), None, "its own is full");
}

#[test]
fn what_turns_worse_does_not_wait_with_what_it_was_before() {
    let mut fold = EventFold::default();
    assert!(take(&mut fold, NOW, "a").is_some());
    assert_eq!(take(&mut fold, NOW + 1, "a"), None);
    let worse = RecordingLimit {
        share: "worse",
        ..RULE
    };
    let added = fold.add_event(NOW + 2, NOW + 2, "a".to_owned(), worse, 7);
    assert_eq!(
        added.map(|folded| (folded.what, folded.count)),
        Some((7, 1))
    );
    let due = fold.take_due_lines(NOW + WINDOW + 2);
    assert_eq!(
        due.iter().map(|f| (f.what, f.count)).collect::<Vec<_>>(),
        [(NOW + 1, 1)]
    );
}

#[test]
fn repeats_do_not_keep_the_first_of_another_waiting() {
    let mut fold = EventFold::default();
    let often: Vec<String> = (0..RULE.hourly).map(|n| format!("a{n}")).collect();
    let mut counted_at = None;
    for minute in 0..120 {
        let now = NOW + minute * MINUTE;
        for key in &often {
            take(&mut fold, now, key);
        }
        if minute == 0 {
            let first = fold.add_event(now, now, "z".to_owned(), RULE, 7);
            assert_eq!(first, None, "the hour's lines are spent");
        }
        if fold
            .take_due_lines(now)
            .iter()
            .any(|folded| folded.what == 7)
        {
            counted_at.get_or_insert(minute);
        }
    }
    assert_eq!(counted_at, Some(60));
}

#[test]
fn what_an_earlier_process_wrote_counts_in_its_hour() {
    let mut fold = EventFold::default();
    for n in 0..RULE.hourly as u64 {
        fold.count_line(RULE, NOW - n);
    }
    assert_eq!(take(&mut fold, NOW, "a"), None);
    assert!(take(&mut fold, NOW + HOUR_MS, "b").is_some());
}

#[test]
fn a_clock_that_is_set_back_by_a_year_stops_nothing() {
    let mut fold = EventFold::default();
    for n in 0..20 {
        take(&mut fold, NOW + n, "a");
    }
    let back = NOW - 365 * 24 * HOUR_MS;
    assert!(take(&mut fold, back, "b").is_some());
    assert_eq!(fold.take_due_lines(back), []);
    let due = fold.take_due_lines(back + WINDOW);
    assert_eq!(due.iter().map(|f| f.count).collect::<Vec<_>>(), [19]);
}
