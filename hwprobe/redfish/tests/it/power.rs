//! Interpretation rules for each form of power resource.

use crate::support;
use crate::support::{read, scope};
use lattice_conformance::{LimitState, Milliwatts, Power, Reading};
use lattice_redfish::{Breadth, Documents, ResourcePath, Selector, read_by_route};
use serde_json::{Value, json};

/// A BMC with one system `S` in one chassis `C`, with these properties of the chassis and these resources below it.
pub fn bmc(state: &str, chassis: Value, resources: &[(&str, Value)]) -> Documents {
    let mut chassis = chassis;
    chassis["Links"] = json!({"ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/S"}]});
    let mut documents = Documents::default();
    let mut put = |path: &str, value: Value| {
        let path = ResourcePath::parse(path).expect("a path");
        documents.0.insert(path, Reading::Present(value));
    };
    put(
        "/redfish/v1",
        json!({
            "Systems": {"@odata.id": "/redfish/v1/Systems"},
            "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
        }),
    );
    put(
        "/redfish/v1/Systems",
        json!({"Members": [{"@odata.id": "/redfish/v1/Systems/S"}]}),
    );
    put(
        "/redfish/v1/Systems/S",
        json!({
            "Id": "S",
            "PowerState": state,
            "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/C"}]},
        }),
    );
    put(
        "/redfish/v1/Chassis",
        json!({"Members": [{"@odata.id": "/redfish/v1/Chassis/C"}]}),
    );
    put("/redfish/v1/Chassis/C", chassis);
    for (path, value) in resources {
        put(&format!("/redfish/v1/Chassis/C/{path}"), value.clone());
    }
    documents
}

pub fn power_of(documents: &Documents) -> Power {
    let (report, _) = read(documents, &scope(Selector::Only, Breadth::Power));
    report.node().expect("one node").power.clone()
}

pub fn link(below: &str) -> Value {
    json!({"@odata.id": format!("/redfish/v1/Chassis/C/{below}")})
}

/// `PowerControl[0]` of a running system.
fn control(entry: Value) -> Power {
    power_control_while("On", entry)
}

fn power_control_while(state: &str, entry: Value) -> Power {
    let power = json!({"PowerControl": [entry]});
    power_of(&bmc(
        state,
        json!({"Power": link("Power")}),
        &[("Power", power)],
    ))
}

fn environment(metrics: Value) -> Power {
    let chassis = json!({"EnvironmentMetrics": link("EnvironmentMetrics")});
    power_of(&bmc("On", chassis, &[("EnvironmentMetrics", metrics)]))
}

fn node_control(control: Value) -> Power {
    let members = json!({"Members": [link("Controls/NodePowerLimit")]});
    let chassis = json!({"Controls": link("Controls")});
    let resources = [("Controls", members), ("Controls/NodePowerLimit", control)];
    power_of(&bmc("On", chassis, &resources))
}

pub const fn watts(watts: u64) -> Reading<Milliwatts> {
    Reading::Present(Milliwatts(watts * 1000))
}

#[test]
fn null_limit_limits_nothing() {
    let state = |limit: Value| control(json!({"PowerConsumedWatts": 97, "PowerLimit": limit}));
    assert_eq!(
        state(json!({"LimitInWatts": null})).limit_state,
        LimitState::Uncapped
    );
    assert_eq!(
        state(json!({"LimitInWatts": 0})).limit_state,
        LimitState::Uncapped
    );
    assert_eq!(state(json!({})).limit_state, LimitState::Unknown);
    assert_eq!(state(json!(null)).limit_state, LimitState::Unknown);
    assert_eq!(
        state(json!({"LimitInWatts": "500"})).limit_state,
        LimitState::Unknown
    );
    assert_eq!(
        state(json!({"LimitInWatts": -1})).limit_state,
        LimitState::Unknown
    );
    let none = control(json!({"PowerConsumedWatts": 97}));
    assert_eq!(
        (none.limit_state, none.limit),
        (LimitState::Absent, Reading::Absent)
    );
}

#[test]
fn a_limit_below_the_draw_is_set_all_the_same() {
    let power = control(json!({
        "PowerConsumedWatts": 429,
        "PowerLimit": {"LimitInWatts": 348, "LimitException": "HardPowerOff"},
    }));
    assert_eq!((power.draw, power.limit), (watts(429), watts(348)));
    assert_eq!(power.limit_state, LimitState::Set);
    let off = Reading::Present("HardPowerOff".to_owned());
    assert_eq!(power.exception_action, off);
}

#[test]
fn nothing_drawn_is_measured_only_while_the_system_is_off() {
    let entry = json!({"PowerConsumedWatts": 0});
    assert_eq!(
        power_control_while("On", entry.clone()).draw,
        Reading::Unsupported
    );
    assert_eq!(
        power_control_while("PoweringOn", entry.clone()).draw,
        Reading::Unsupported
    );
    assert_eq!(power_control_while("Off", entry).draw, watts(0));
}

#[test]
fn absent_null_and_the_wrong_type_are_three_things() {
    let draw = |entry: Value| control(entry).draw;
    assert_eq!(
        draw(json!({"PowerConsumedWatts": null})),
        Reading::Unsupported
    );
    assert_eq!(draw(json!({"PowerMetrics": {}})), Reading::Absent);
    for wrong in [
        json!("467"),
        json!([467]),
        json!({"Reading": 467}),
        json!(-3),
        json!(1e12),
    ] {
        let draw = draw(json!({"PowerConsumedWatts": wrong}));
        assert!(matches!(draw, Reading::Failed { .. }), "{wrong}: {draw}");
    }
    assert_eq!(
        draw(json!({"PowerConsumedWatts": 97.5})),
        Reading::Present(Milliwatts(97_500))
    );
}

#[test]
fn vendors_report_range_with_limit() {
    let gigabyte = control(json!({
        "PowerConsumedWatts": 100,
        "PowerLimit": {"LimitInWatts": 500},
        "Oem": {"Vendor": {"PowerLimit": {"Factor": 10, "Max": 900, "Min": 61}}},
    }));
    assert_eq!(
        (gigabyte.limit_min, gigabyte.limit_max),
        (watts(61), watts(900))
    );
    let lenovo = control(json!({
        "PowerLimit": {"LimitInWatts": 500},
        "Oem": {"Lenovo": {"PowerUtilization": {
            "MinLimitInWatts": 210, "MaxLimitInWatts": 750, "EnablePowerCapping": false,
        }}},
    }));
    assert_eq!(
        (lenovo.limit_min, lenovo.limit_max),
        (watts(210), watts(750))
    );
    assert_eq!(lenovo.limit_state, LimitState::Uncapped);
    let nobody = control(json!({
        "PowerLimit": {"LimitInWatts": 500}, "Oem": {"V": {"PowerLimit": {"Max": 0}}},
    }));
    assert_eq!(nobody.limit_max, Reading::Unsupported);
}

#[test]
fn a_control_that_is_disabled_or_at_its_maximum_limits_nothing() {
    let of = |mode: &str, point: Value| {
        node_control(json!({
            "ControlType": "Power", "ControlMode": mode, "SetPoint": point,
            "SettingRangeMin": 764, "SettingRangeMax": 2754, "Sensor": {"Reading": 736},
        }))
    };
    let states = [
        ("Disabled", json!(0), LimitState::Uncapped),
        ("Disabled", json!(1500), LimitState::Uncapped),
        ("Automatic", json!(0), LimitState::Uncapped),
        ("Automatic", json!(null), LimitState::Uncapped),
        ("Automatic", json!(2754), LimitState::Uncapped),
        ("Manual", json!(1500), LimitState::Set),
        ("Automatic", json!("full"), LimitState::Unknown),
    ];
    for (mode, point, state) in states {
        let power = of(mode, point.clone());
        assert_eq!(power.limit_state, state, "{mode} {point}");
        assert_eq!((power.draw, power.limit_max), (watts(736), watts(2754)));
        assert_eq!(power.limit.present().is_some(), state == LimitState::Set);
    }
}

#[test]
fn environment_metrics_tell_draw_and_limit() {
    let power = environment(json!({
        "PowerWatts": {"Reading": 1310.4},
        "PowerLimitWatts": {
            "SetPoint": 2400, "AllowableMin": 1286, "AllowableMax": 2777, "ControlMode": "Automatic",
        },
    }));
    assert_eq!(power.draw, Reading::Present(Milliwatts(1_310_400)));
    assert_eq!(
        (power.limit_state, power.limit),
        (LimitState::Set, watts(2400))
    );
    assert_eq!(
        (power.limit_min, power.limit_max),
        (watts(1286), watts(2777))
    );
    let plain = environment(json!({"PowerWatts": {"Reading": null}}));
    assert_eq!(
        (plain.draw, plain.limit_state),
        (Reading::Unsupported, LimitState::Absent)
    );
}

#[test]
fn the_accelerators_of_a_node_have_a_limit_service_of_their_own() {
    let power = json!({
        "PowerControl": [{"PowerConsumedWatts": 812}],
        "Oem": {"Hpe": {"Links": {"AccPowerService": link("Power/AccPowerService")}}},
    });
    let service = json!({
        "PowerRegulationEnabled": true, "Links": {"PowerLimit": link("Power/AccPowerService/PowerLimit")},
    });
    let limit = json!({
        "PowerLimitRanges": [{"MaximumPowerLimit": 6000, "MinimumPowerLimit": 1400, "ZoneNumber": 0}],
        "PowerLimits": [{"PowerLimitInWatts": 3000, "ZoneNumber": 0}],
    });
    let resources = |enabled: bool| {
        let mut service = service.clone();
        service["PowerRegulationEnabled"] = json!(enabled);
        [
            ("Power", power.clone()),
            ("Power/AccPowerService", service),
            ("Power/AccPowerService/PowerLimit", limit.clone()),
        ]
    };
    let chassis = json!({"Power": link("Power")});
    let set = power_of(&bmc("On", chassis.clone(), &resources(true)));
    assert_eq!((set.draw, set.limit), (watts(812), watts(3000)));
    assert_eq!((set.limit_min, set.limit_max), (watts(1400), watts(6000)));
    let off = power_of(&bmc("On", chassis, &resources(false)));
    assert_eq!(off.limit_state, LimitState::Uncapped);
}

#[test]
fn of_several_power_controls_the_whole_nodes_counts_in_any_order() {
    let entries = [
        json!({"MemberId": "1", "Name": "CPU Power Control", "PowerConsumedWatts": 180}),
        json!({"MemberId": "0", "Name": "Server Power Control", "PowerConsumedWatts": 410}),
        json!({"MemberId": "2", "Name": "Memory Power", "PowerConsumedWatts": 40}),
    ];
    for turn in 0..3 {
        let mut turned = entries.to_vec();
        turned.rotate_left(turn);
        let power = json!({"PowerControl": turned});
        let power = power_of(&bmc(
            "On",
            json!({"Power": link("Power")}),
            &[("Power", power)],
        ));
        assert_eq!(power.draw, watts(410));
    }
}

#[test]
fn shared_chassis_value_needs_node_name() {
    let system = |id: &str| json!({"@odata.id": format!("/redfish/v1/Systems/{id}")});
    let power = |related: Value| {
        json!({"PowerControl": [
            {"MemberId": "0", "PowerConsumedWatts": 2400, "RelatedItem": [system("S"), system("T")]},
            {"MemberId": "1", "PowerConsumedWatts": 590, "RelatedItem": related},
        ]})
    };
    let shared = |related: Value| {
        let mut documents = bmc(
            "On",
            json!({"Power": link("Power"), "EnvironmentMetrics": link("EnvironmentMetrics")}),
            &[
                ("Power", power(related)),
                (
                    "EnvironmentMetrics",
                    json!({"PowerWatts": {"Reading": 2400}}),
                ),
            ],
        );
        let systems = support::document(&mut documents, "/redfish/v1/Systems");
        systems["Members"] = json!([system("S"), system("T")]);
        let mut other = support::document(&mut documents, "/redfish/v1/Systems/S").clone();
        other["Id"] = json!("T");
        let path = ResourcePath::parse("/redfish/v1/Systems/T").expect("a path");
        documents.0.insert(path, Reading::Present(other));
        let asked = scope(Selector::Id("S".to_owned()), Breadth::Power);
        let (report, _) = read(&documents, &asked);
        report.node().expect("one node").power.clone()
    };
    assert_eq!(shared(json!([system("T")])).draw, Reading::Absent);
    assert_eq!(shared(json!([])).draw, Reading::Absent);
    assert_eq!(shared(json!([system("S")])).draw, watts(590));
}

#[test]
fn a_source_that_does_not_answer_leaves_the_limit_unknown() {
    let path = ResourcePath::parse("/redfish/v1/Chassis/C/Power").expect("a path");
    for silent in [
        Reading::Timeout { after_ms: 5000 },
        Reading::denied("403"),
        Reading::failed("500"),
    ] {
        let mut documents = bmc("On", json!({"Power": link("Power")}), &[]);
        documents.0.insert(path.clone(), silent);
        let power = power_of(&documents);
        assert!(!power.draw.is_known(), "{}", power.draw);
        assert_eq!(power.limit_state, LimitState::Unknown);
        assert!(!power.limit.is_known() && !power.exception_action.is_known());
    }
}

#[test]
fn controls_that_do_not_answer_are_no_word_on_there_being_none() {
    let list = ResourcePath::parse("/redfish/v1/Chassis/C/Controls").expect("a path");
    let one = ResourcePath::parse("/redfish/v1/Chassis/C/Controls/NodePowerLimit").expect("a path");
    let chassis = json!({"Controls": link("Controls"), "Power": link("Power")});
    let power = json!({"PowerControl": [{"PowerConsumedWatts": 410}]});
    let members = json!({"Members": [link("Controls/NodePowerLimit")]});
    let cap = json!({"ControlType": "Power", "SetPoint": 800});
    for silent in [list, one] {
        let resources = [
            ("Power", power.clone()),
            ("Controls", members.clone()),
            ("Controls/NodePowerLimit", cap.clone()),
        ];
        let mut documents = bmc("On", chassis.clone(), &resources);
        documents
            .0
            .insert(silent, Reading::Timeout { after_ms: 5000 });
        let (report, _) = read(&documents, &scope(Selector::Only, Breadth::Power));
        let node = report.node().expect("one node");
        let power = &node.power;
        assert_eq!(
            (&power.draw, power.limit_state),
            (&watts(410), LimitState::Unknown)
        );
        assert!(!power.exception_action.is_known());
        // Values of formerly silent sources stay unknown until the sources have been examined.
        let answers = bmc("On", chassis.clone(), &resources);
        let routed = read_by_route(&answers, &node.route);
        assert_eq!(routed.power.draw, watts(410));
        assert_ne!(routed.power.limit_state, LimitState::Absent);
    }
}

#[test]
fn a_baseboard_inside_the_chassis_is_not_the_node() {
    let own = json!({"EnvironmentMetrics": link("EnvironmentMetrics")});
    let metrics = json!({"PowerWatts": {"Reading": 5200}});
    let mut documents = bmc("On", own, &[("EnvironmentMetrics", metrics)]);
    let at = |text: &str| ResourcePath::parse(text).expect("a path");
    let board = json!({
        "ChassisType": "Module",
        "EnvironmentMetrics": {"@odata.id": "/redfish/v1/Chassis/B/EnvironmentMetrics"},
        "Links": {"ContainedBy": {"@odata.id": "/redfish/v1/Chassis/C"}},
    });
    let metrics = json!({"PowerWatts": {"Reading": 3100}});
    for (path, value) in [
        ("/redfish/v1/Chassis/B", board),
        ("/redfish/v1/Chassis/B/EnvironmentMetrics", metrics),
    ] {
        documents.0.insert(at(path), Reading::Present(value));
    }
    let system = support::document(&mut documents, "/redfish/v1/Systems/S");
    let links = ["B", "C"].map(|id| json!({"@odata.id": format!("/redfish/v1/Chassis/{id}")}));
    system["Links"]["Chassis"] = json!(links);
    assert_eq!(power_of(&documents).draw, watts(5200));
}

#[test]
fn accelerators_as_processors_have_limits() {
    let mut documents = bmc("On", json!({}), &[]);
    let processors = "/redfish/v1/Systems/S/Processors";
    let at = |below: &str| format!("{processors}{below}");
    let to = |below: &str| json!({"@odata.id": at(below)});
    let gpu = |metrics: &str| json!({"ProcessorType": "GPU", "EnvironmentMetrics": to(metrics)});
    let metrics = json!({
        "PowerWatts": {"Reading": 512.5},
        "PowerLimitWatts": {"SetPoint": 700, "AllowableMin": 200, "AllowableMax": 1000},
    });
    for (path, value) in [
        (
            at(""),
            json!({"Members": [to("/GPU_1"), to("/CPU_0"), to("/GPU_0")]}),
        ),
        (at("/CPU_0"), json!({"ProcessorType": "CPU"})),
        (at("/GPU_0"), gpu("/GPU_0/EnvironmentMetrics")),
        (at("/GPU_1"), gpu("/GPU_1/EnvironmentMetrics")),
        (at("/GPU_0/EnvironmentMetrics"), metrics),
    ] {
        let path = ResourcePath::parse(&path).expect("a path");
        documents.0.insert(path, Reading::Present(value));
    }
    let system = support::document(&mut documents, "/redfish/v1/Systems/S");
    system["Processors"] = to("");
    let (report, _) = read(&documents, &support::everything());
    let vitals = &report.node().expect("one node").vitals;
    let get = |key: &str| vitals.get(&format!("bmc.accelerator.{key}")).to_string();
    assert_eq!(get("0.power.draw"), "512500");
    assert_eq!(get("0.power.limit"), "700000");
    assert_eq!(get("0.power.limit_state"), "set");
    // The other accelerator's metrics are missing, so it has no value.
    assert!(!vitals.0.contains_key("bmc.accelerator.1.power.draw"));
}
