//! Every recorded BMC tree against the published values: no wrong value, and no invented one.

use crate::support::{everything, fetched, read, scope, tree};
use lattice_conformance::{LimitState, Reading, Value};
use lattice_redfish::{
    Breadth, Documents, NoSystemReason, NodeReport, Route, RoutedPower, Selector, interpret,
    read_by_route,
};

/// Expected values of one system, in watts; `None` for a value that must be missing.
struct ExpectedSystem {
    tree: &'static str,
    system: &'static str,
    bios: Option<&'static str>,
    bmc: Option<&'static str>,
    /// Number of entries in the firmware inventory that belong to this system or are shared, without that of the BIOS.
    inventory: Option<usize>,
    settings: Option<usize>,
    draw: Option<u64>,
    limit: Option<u64>,
    limit_state: LimitState,
    range: Option<(u64, u64)>,
    exception: Option<&'static str>,
}

const NOTHING: ExpectedSystem = ExpectedSystem {
    tree: "",
    system: "",
    bios: None,
    bmc: None,
    inventory: None,
    settings: None,
    draw: None,
    limit: None,
    limit_state: LimitState::Absent,
    range: None,
    exception: None,
};

const WANTED: &[ExpectedSystem] = &[
    // The control reports the draw, and that there is no limit: mode disabled, set point 0.
    ExpectedSystem {
        tree: "cray-ex235a-mi250x",
        system: "Node0",
        bios: Some("ex235a.bios-1.3.6"),
        bmc: Some("nc.1.6.16-21-prod-master.arm.2022-01-25T16:23:33+00:00.28331ff"),
        inventory: Some(13),
        settings: Some(16),
        draw: Some(736),
        limit_state: LimitState::Uncapped,
        range: Some((764, 2754)),
        exception: Some("NoAction"),
        ..NOTHING
    },
    // One BMC for two nodes with 15 entries each; 30 in total including the seven shared ones.
    ExpectedSystem {
        tree: "cray-ex235n-a100",
        system: "Node0",
        bios: Some("ex235n.bios-1.2.1"),
        bmc: Some("nc.1.6.19-5-shasta-release.arm.2022-02-25T01:38:09+00:00.d20b426"),
        inventory: Some(18),
        settings: Some(18),
        draw: Some(467),
        ..NOTHING
    },
    ExpectedSystem {
        tree: "cray-ex235n-a100",
        system: "Node1",
        bios: Some("ex235n.bios-1.2.1"),
        bmc: Some("nc.1.6.19-5-shasta-release.arm.2022-02-25T01:38:09+00:00.d20b426"),
        inventory: Some(18),
        settings: Some(18),
        draw: Some(534),
        ..NOTHING
    },
    // A null limit is a control without an active limit.
    ExpectedSystem {
        tree: "hpe-dl325-ilo5",
        system: "1",
        bios: Some("A43 v2.52 (10/29/2021)"),
        bmc: Some("iLO 5 v2.46"),
        inventory: Some(10),
        settings: Some(210),
        draw: Some(97),
        limit_state: LimitState::Uncapped,
        ..NOTHING
    },
    ExpectedSystem {
        tree: "hpe-dl380a-gen11-ilo6",
        system: "1",
        bios: Some("U58 v2.44 (01/17/2025)"),
        bmc: Some("iLO 6 v1.66"),
        inventory: Some(33),
        settings: Some(274),
        draw: Some(565),
        ..NOTHING
    },
    // A limit below the draw counts as set. The recording contains no manager and no inventory.
    ExpectedSystem {
        tree: "dell-poweredge-idrac",
        system: "System.Embedded.1",
        bios: Some("2.3.10"),
        draw: Some(429),
        limit: Some(348),
        limit_state: LimitState::Set,
        exception: Some("HardPowerOff"),
        ..NOTHING
    },
    ExpectedSystem {
        tree: "gigabyte-h262-ami",
        system: "Self",
        bios: Some("C27"),
        bmc: Some("12.84.13"),
        inventory: Some(2),
        settings: Some(550),
        draw: Some(100),
        limit: Some(500),
        limit_state: LimitState::Set,
        range: Some((61, 900)),
        exception: Some("HardPowerOff"),
    },
    // 0 W on a running node is not a measurement.
    ExpectedSystem {
        tree: "supermicro-x10sdv",
        system: "1",
        bios: Some("1.2"),
        bmc: Some("4.0"),
        ..NOTHING
    },
    // Recordings without any chassis: power is unknown, including whether there is a limit.
    ExpectedSystem {
        tree: "bmclib/dell",
        system: "System.Embedded.1",
        bios: Some("2.2.4"),
        bmc: Some("1.20.50.52"),
        settings: Some(151),
        limit_state: LimitState::Unknown,
        ..NOTHING
    },
    ExpectedSystem {
        tree: "bmclib/supermicro-1.9",
        system: "1",
        bios: Some("1.6"),
        bmc: Some("01.13.04"),
        settings: Some(8),
        limit_state: LimitState::Unknown,
        ..NOTHING
    },
    ExpectedSystem {
        tree: "bmclib/supermicro-1.14",
        system: "1",
        bios: Some("2.0"),
        limit_state: LimitState::Unknown,
        ..NOTHING
    },
    // The system's chassis is not among the samples; the ones present contain other systems.
    ExpectedSystem {
        tree: "sushy-samples",
        system: "437XR1138R2",
        bios: Some("P79 v1.45 (12/06/2017)"),
        bmc: Some("1.00"),
        inventory: Some(2),
        limit_state: LimitState::Unknown,
        ..NOTHING
    },
];

fn shown(reading: &Reading<Value>) -> Option<String> {
    reading.present().map(ToString::to_string)
}

fn count(reading: &Reading<Value>) -> Option<usize> {
    match reading.present()? {
        Value::List(names) => Some(names.len()),
        other => panic!("{other} is no list of names"),
    }
}

fn check(wanted: &ExpectedSystem, node: &NodeReport) {
    let at = format!("{} {}", wanted.tree, wanted.system);
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let bios = node.bios.get("bios.redfish.version");
    assert_eq!(shown(&bios), owned(wanted.bios), "{at}: bios {bios}");
    let bmc = node.bmc.get("bmc.firmware");
    assert_eq!(shown(&bmc), owned(wanted.bmc), "{at}: bmc {bmc}");
    let inventory = node.bmc.get("bmc.inventory.names");
    assert_eq!(count(&inventory), wanted.inventory, "{at}: {inventory}");
    let settings = node.bios.get("bios.setting.names");
    assert_eq!(count(&settings), wanted.settings, "{at}: {settings}");
    let power = &node.power;
    let milli = |watts: u64| watts * 1000;
    let draw = power.draw.present().map(|watts| watts.0);
    assert_eq!(draw, wanted.draw.map(milli), "{at}: draw {}", power.draw);
    let limit = power.limit.present().map(|watts| watts.0);
    assert_eq!(limit, wanted.limit.map(milli), "{at}: {}", power.limit);
    assert_eq!(power.limit_state, wanted.limit_state, "{at}");
    let range = power.limit_min.present().zip(power.limit_max.present());
    let range = range.map(|(min, max)| (min.0, max.0));
    let wanted_range = wanted.range.map(|(min, max)| (milli(min), milli(max)));
    assert_eq!(range, wanted_range, "{at}");
    let exception = power.exception_action.present().cloned();
    assert_eq!(exception, owned(wanted.exception), "{at}");
    assert_eq!(draw.is_some(), !power.source.is_empty(), "{at}: source");
}

#[test]
fn every_tree_shows_what_was_published_about_it_and_no_more() {
    for wanted in WANTED {
        let (report, _) = read(&tree(wanted.tree), &everything());
        let mut nodes = report.nodes.iter();
        let node = nodes.find(|node| node.system.id == wanted.system);
        check(wanted, node.expect("the system is found"));
        let listed = WANTED.iter().filter(|other| other.tree == wanted.tree);
        assert_eq!(report.nodes.len(), listed.count(), "{}", wanted.tree);
    }
}

#[test]
fn a_power_shelf_serves_no_system() {
    for name in [
        "powershelves/delta",
        "powershelves/liteon",
        "powershelves/none",
    ] {
        for systems in [Selector::Every, Selector::Only] {
            let (report, took) = read(&tree(name), &scope(systems, Breadth::Everything));
            assert_eq!(report.unselected, Some(NoSystemReason::None), "{name}");
            assert_eq!((report.nodes.len(), took), (0, 1), "{name}");
        }
    }
}

#[test]
fn the_two_nodes_of_one_blade_are_alike() {
    let (report, _) = read(&tree("cray-ex235n-a100"), &everything());
    let [one, other] = report.nodes.as_slice() else {
        panic!("two nodes");
    };
    assert_eq!(one.bmc.state(), other.bmc.state());
    assert_eq!(one.bios.state(), other.bios.state());
    assert_ne!(one.power.source, other.power.source);
    // An unreadable entry has no version.
    let offline = one.bmc.get("bmc.inventory.managementethernet.version");
    assert_eq!(offline, Reading::Unsupported);
}

#[test]
fn an_accelerators_limit_is_a_live_value() {
    let (report, _) = read(&tree("cray-ex235a-mi250x"), &everything());
    let node = report.node().expect("one node");
    for (at, draw) in [118, 116, 118, 115].into_iter().enumerate() {
        let get = |what: &str| {
            node.vitals
                .get(&format!("bmc.accelerator.{at}.power.{what}"))
        };
        assert_eq!(get("draw"), Reading::Present(Value::Number(draw * 1000)));
        assert_eq!(get("limit_state"), Reading::Present("uncapped".into()));
        assert_eq!(get("limit_max"), Reading::Present(Value::Number(560_000)));
    }
    assert!(!node.vitals.0.contains_key("bmc.accelerator.4.power.draw"));
}

#[test]
fn power_alone_takes_few_requests_and_one_by_the_route_found() {
    for (name, first) in [
        ("cray-ex235a-mi250x", 13),
        // Two nodes: a chassis, its sensors and one sensor for each.
        ("cray-ex235n-a100", 13),
        ("hpe-dl325-ilo5", 5),
        ("gigabyte-h262-ami", 5),
        ("dell-poweredge-idrac", 5),
        // Without a draw, the list of chassis is read too.
        ("supermicro-x10sdv", 6),
    ] {
        let tree = tree(name);
        let (report, took) = read(&tree, &scope(Selector::Every, Breadth::Power));
        assert!(took <= first, "{name}: {took} requests");
        let (everything, _) = read(&tree, &everything());
        for (node, full) in report.nodes.iter().zip(&everything.nodes) {
            assert_eq!(node.power, full.power, "{name}");
            let route = serde_json::to_vec(&node.route).expect("a route is written");
            let route = serde_json::from_slice(&route).expect("and read back");
            let (routed, asked) = routed(&tree, &route);
            assert_eq!(routed.power, node.power, "{name}");
            assert!(!routed.is_stale);
            assert!(asked <= 2, "{name}: {asked}");
        }
    }
}

#[test]
fn route_without_resources_is_stale() {
    let tree = tree("hpe-dl325-ilo5");
    let (report, _) = read(&tree, &scope(Selector::Only, Breadth::Power));
    let route = &report.node().expect("one node").route;
    let mut at_hand = Documents::default();
    for path in read_by_route(&at_hand, route).wanted {
        at_hand.0.insert(path, Reading::Absent);
    }
    let routed = read_by_route(&at_hand, route);
    assert!(routed.is_stale && routed.wanted.is_empty());
    assert_eq!(routed.power.draw, Reading::Absent);
    // A BMC that does not answer has not moved its resources.
    let mut silent = Documents::default();
    for path in at_hand.0.into_keys() {
        silent.0.insert(path, Reading::Timeout { after_ms: 4000 });
    }
    let routed = read_by_route(&silent, route);
    assert!(!routed.is_stale);
    assert_eq!(routed.power.draw, Reading::Timeout { after_ms: 4000 });
    assert_eq!(routed.power.limit_state, LimitState::Unknown);
}

/// The result of a pass with one resource, and those below it, not answering.
fn silent_below(tree: &Documents, prefix: &str) -> (Documents, NodeReport) {
    let mut silent = tree.clone();
    for (path, reading) in &mut silent.0 {
        if path.as_str().starts_with(prefix) {
            *reading = Reading::Timeout { after_ms: 4000 };
        }
    }
    let (report, _) = read(
        &silent,
        &scope(Selector::Id("Node0".to_owned()), Breadth::Power),
    );
    let node = report.node().expect("one node").clone();
    (silent, node)
}

/// Result of reading the route on this tree, and the number of resources read.
fn routed(tree: &Documents, route: &Route) -> (RoutedPower, usize) {
    let mut at_hand = Documents::default();
    loop {
        let routed = read_by_route(&at_hand, route);
        if routed.wanted.is_empty() {
            return (routed, at_hand.0.len());
        }
        for path in routed.wanted {
            let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
            at_hand.0.insert(path, answer);
        }
    }
}

#[test]
fn route_found_during_hang_never_means_no_limit() {
    let tree = tree("cray-ex235n-a100");
    let selector = Selector::Id("Node0".to_owned());
    let (report, _) = read(&tree, &scope(selector, Breadth::Power));
    let whole = report.node().expect("one node").clone();
    assert!(!whole.route.is_partial());
    // No chassis could be read, so there is no source, and every value is unknown.
    let (silent, node) = silent_below(&tree, "/redfish/v1/Chassis");
    assert!(node.route.sources.is_empty() && node.route.is_partial());
    let (nothing, _) = routed(&silent, &node.route);
    assert!(nothing.is_stale);
    assert!(!nothing.power.draw.is_known(), "{:?}", nothing.power);
    assert_eq!(nothing.power.limit_state, LimitState::Unknown);
    // One source did not answer: it is queried again, and its value counts once it answers.
    for source in &whole.route.sources {
        let (silent, node) = silent_below(&tree, source.path.as_str());
        assert_eq!(routed(&silent, &node.route).0.power, node.power);
        let answered = routed(&tree, &node.route).0.power;
        assert_eq!(answered.draw, whole.power.draw, "{source:?}");
        assert_eq!(answered.limit_state, whole.power.limit_state, "{source:?}");
    }
}

#[test]
fn the_order_in_which_answers_come_does_not_count() {
    let tree = tree("cray-ex235n-a100");
    let scope = everything();
    let at_once = interpret(&fetched(&tree, &scope), &scope).report;
    let mut at_hand = Documents::default();
    loop {
        let mut wanted = interpret(&at_hand, &scope).wanted;
        let Some(path) = wanted.pop_last() else { break };
        let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
        at_hand.0.insert(path, answer);
    }
    assert_eq!(interpret(&at_hand, &scope).report, at_once);
}
