//! Which Service has a port, and which ports no Service gets.

use super::*;

#[test]
fn what_the_machine_cannot_bind_is_left_out_and_told() {
    let machine = Machine {
        ephemeral: Some(32_768..=60_999),
        addresses: Some(["192.0.2.1".parse().unwrap()].into()),
        nonlocal_v6: true,
        ..Machine::default()
    };
    let with = |name: &str, number, address: &str| Service {
        ports: vec![port("http", number)],
        address: Some(address.parse().unwrap()),
        ..service(name)
    };
    let services = vec![
        with("a/fits", 80, "192.0.2.1"),
        with("a/high", 40_000, "192.0.2.1"),
        with("a/elsewhere", 80, "192.0.2.2"),
        with("a/six", 80, "2001:db8::1"),
    ];
    let (labels, told) = seen(services, &Settings { machine, ..settings() });
    let expected = [
        "fits_a_80_tcp_http c0000201_80_tcp_http ",
        "six_a_80_tcp_http 20010db8000000000000000000000001_80_tcp_http ",
    ];
    assert_eq!(labels, expected);
    let expected = [("elsewhere", Reason::AddressNotAvailable), ("high", Reason::EphemeralPort)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_port_on_which_another_program_listens_is_left_out_and_told() {
    let listening = [("127.0.0.1".parse().unwrap(), 9180), ("192.0.2.9".parse().unwrap(), 80)];
    let machine = Machine { listening: listening.into(), ..Machine::default() };
    let mut web = service("a/web");
    web.ports = vec![port("http", 8080), port("admin", 9180)];
    let mut other = service("a/other");
    other.address = Some("192.0.2.1".parse().unwrap());
    let (labels, told) = seen(vec![web, other], &Settings { machine, ..settings() });
    let expected = [
        "other_a_80_tcp_http c0000201_80_tcp_http ",
        "web_a_8080_tcp_http 00000000_8080_tcp_http ",
    ];
    assert_eq!(labels, expected);
    assert_eq!(told, [("web".to_owned(), Reason::BindFailed)]);
}

#[test]
fn addresses_that_overlap_are_one_place_whose_port_the_older_has() {
    let at = |name: &str, created, address: &str| Service {
        created,
        address: Some(address.parse().unwrap()),
        ..service(name)
    };
    for (old, young, both) in [
        ("0.0.0.0", "192.0.2.10", false),
        ("192.0.2.10", "0.0.0.0", false),
        ("::", "192.0.2.10", false),
        ("192.0.2.10", "::", false),
        ("2001:db8::1", "::", false),
        ("2001:db8::1", "0.0.0.0", true),
        ("192.0.2.10", "192.0.2.11", true),
        ("0.0.0.0", "0.0.0.0", true),
    ] {
        let services = vec![at("a/young", 2, young), at("b/old", 1, old)];
        let (labels, told) = seen(services, &settings());
        let names: Vec<_> = labels.iter().filter_map(|label| label.split('_').next()).collect();
        let taken = ("young".to_owned(), Reason::PortTaken);
        let expected =
            if both { (vec!["young", "old"], vec![]) } else { (vec!["old"], vec![taken]) };
        assert_eq!((names, told), expected, "{old} {young}");
    }
}

#[test]
fn an_address_that_every_machine_has_is_nobodys_but_the_administrators() {
    let at = |address: &str| Service { address: Some(address.parse().unwrap()), ..service("a/x") };
    for own in ["127.0.0.1", "169.254.1.1", "::1", "fe80::1", "::ffff:127.0.0.1", "224.0.0.1"] {
        let (labels, told) = seen(vec![at(own)], &settings());
        assert_eq!((labels.len(), told), (0, vec![("x".to_owned(), Reason::BadValue)]), "{own}");
        let default = Settings { default_address: own.parse().unwrap(), ..settings() };
        assert_eq!(seen(vec![at(own)], &default).0.len(), 1, "{own}");
    }
}

#[test]
fn the_older_of_two_has_a_port_that_only_one_can_have() {
    let tcp = |name: &str, created| Service {
        created,
        ports: vec![Port { mode: Some("tcp".into()), ..port("http", 80) }],
        ..service(name)
    };
    let http = |name: &str, created| Service { created, ..service(name) };
    let (labels, told) =
        seen(vec![tcp("a/young", 2), tcp("b/old", 1), http("c/web", 3)], &settings());
    assert_eq!(labels, ["old_b_80_tcp_tcp 00000000_80_tcp_tcp "]);
    let expected = [("young", Reason::PortTaken), ("web", Reason::PortTaken)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
    let (labels, told) = seen(vec![http("a/x", 1), http("b/y", 2)], &settings());
    assert_eq!((labels.len(), told), (2, vec![]));
}

#[test]
fn a_service_that_shares_a_port_does_not_get_it_alone_by_another_mode() {
    let mode = |name: &str, mode: Option<&str>, created| {
        let port = Port { mode: mode.map(Into::into), ..port("", 80) };
        Service { created, ports: vec![port], ..service(name) }
    };
    let mut exposed =
        told([mode("evil/web", None, 0), mode("shop/web", None, 5)].iter().flat_map(with_pod));
    publish(&mut exposed);
    edit(&mut exposed, &mode("evil/web", Some("tcp"), 0));
    let (entries, told) = publish(&mut exposed);
    assert_eq!(entries, ["shop/web"]);
    assert_eq!(told, [("evil".to_owned(), Reason::PortTaken)]);
}
