//! Network device lookup: its properties and counters.

use nix::net::if_::if_nametoindex;
use std::path::Path;
use thiserror::Error;

/// A device of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub index: u32,
    /// Bytes after the link's header.
    pub mtu: u32,
    pub is_up: bool,
    /// Frames on it begin with Ethernet's header.
    pub is_ethernet: bool,
    /// True for a loopback device: packets sent on it return on it.
    pub is_loopback: bool,
    /// Why other hosts are behind it, as far as can be seen.
    pub way_out: Option<WayOut>,
}

/// What shows that packets sent on a device reach other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WayOut {
    #[error("it carries the default route")]
    DefaultRoute,
    #[error("a route through it has a gateway")]
    Gateway,
    #[error("{0} is a network card")]
    Card(String),
    #[error("{0} is a tunnel")]
    Tunnel(String),
}

/// Counters of a device since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub received_dropped: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub sent_dropped: u64,
}

#[derive(Debug, Error)]
pub enum DeviceError {
    #[error("there is no network device {name}; there are {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("cannot read {path}")]
    Unreadable { path: String, source: std::io::Error },
}

const PROC_NET: &str = "/proc/thread-self/net";

impl Device {
    /// # Errors
    /// No such device in this namespace; procfs or sysfs is not there.
    pub fn find(name: &str) -> Result<Self, DeviceError> {
        let unknown = |_| DeviceError::Unknown { name: name.to_owned(), known: device_names() };
        let index = if_nametoindex(name).map_err(unknown)?;
        // A link-level name is no path: the kernel takes none with a slash or dots alone.
        let about = |file: &str| read_file(&format!("/sys/class/net/{name}/{file}"));
        let number = |text: String| text.trim().parse::<u32>().unwrap_or(0);
        let flags = about("flags")?;
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        // ARPHRD_ETHER, ARPHRD_LOOPBACK: loopback's frames have the same header.
        let is_ethernet = matches!(number(about("type")?), 1 | 772);
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu: number(about("mtu")?),
            is_up: flags & libc::IFF_UP as u32 != 0,
            is_ethernet,
            is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
            way_out: find_way_out(name),
        })
    }

    /// # Errors
    /// The device is gone.
    pub fn counters(&self) -> Result<Counters, DeviceError> {
        Counters::read(&self.name)
    }
}

impl Counters {
    /// Of the device of that name in the namespace of the thread that asks, wherever sysfs belongs to.
    ///
    /// # Errors
    /// There is no such device; procfs is not there.
    pub fn read(name: &str) -> Result<Self, DeviceError> {
        let text = read_file(&format!("{PROC_NET}/dev"))?;
        let gone = || DeviceError::Unknown { name: name.to_owned(), known: device_names() };
        parse_counters(&text, name).ok_or_else(gone)
    }
}

/// proc_pid_net(5): eight columns received, eight sent; packets, errors and drops follow the bytes.
fn parse_counters(text: &str, name: &str) -> Option<Counters> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, columns) = lines.into_iter().find(|(device, _)| device.trim() == name)?;
    let columns: Vec<u64> = columns.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    let column = |i: usize| columns.get(i).copied();
    Some(Counters {
        received_bytes: column(0)?,
        received_packets: column(1)?,
        received_dropped: column(3)?,
        sent_bytes: column(8)?,
        sent_packets: column(9)?,
        sent_dropped: column(11)?,
    })
}

fn device_names() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(PROC_NET).join("dev")).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

fn find_way_out(name: &str) -> Option<WayOut> {
    let table = |file: &str| std::fs::read_to_string(format!("{PROC_NET}/{file}")).unwrap_or_default();
    let routes = [parse_routes_v4(&table("route")), parse_routes_v6(&table("ipv6_route"))].concat();
    let routes = || routes.iter().filter(|route| route.device == name);
    if routes().any(|route| route.is_default) {
        return Some(WayOut::DefaultRoute);
    }
    if routes().any(|route| route.has_gateway) {
        return Some(WayOut::Gateway);
    }
    find_card(Path::new("/sys/class/net"), name)
}

/// A network card or tunnel that packets on this device reach: itself, what it stands on (a VLAN, a bond), or a member of
/// the same bridge.
fn find_card(devices: &Path, name: &str) -> Option<WayOut> {
    let mut reached = vec![name.to_owned()];
    let mut next = 0;
    while next < reached.len() {
        let name = reached[next].clone();
        let dir = devices.join(&name);
        if dir.join("device").exists() || dir.join("phy80211").exists() {
            return Some(WayOut::Card(name));
        }
        let kind = std::fs::read_to_string(dir.join("uevent")).unwrap_or_default();
        if kind.lines().filter_map(|line| line.strip_prefix("DEVTYPE=")).any(|kind| TUNNELS.contains(&kind)) {
            return Some(WayOut::Tunnel(name));
        }
        let master = std::fs::read_link(dir.join("master")).ok();
        let master = master.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("lower_")?.to_owned()))
            .chain(master);
        for device in below {
            if !reached.contains(&device) {
                reached.push(device);
            }
        }
        next += 1;
    }
    None
}

/// The kernel's names of kinds of devices whose packets leave in others.
const TUNNELS: [&str; 4] = ["vxlan", "geneve", "wireguard", "ppp"];

/// A route of the kernel's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    device: String,
    is_default: bool,
    has_gateway: bool,
}

/// RTF_GATEWAY, RTF_REJECT of linux/route.h.
const GATEWAY: u32 = 0x2;
const REJECT: u32 = 0x200;

/// Device, destination, gateway, flags, ..., mask in the eighth column.
fn parse_routes_v4(table: &str) -> Vec<Route> {
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let route = |row: Vec<&str>| {
        let flags = u32::from_str_radix(row.get(3)?, 16).ok()?;
        Some(Route {
            device: (*row.first()?).to_owned(),
            is_default: row.get(1) == Some(&"00000000") && row.get(7) == Some(&"00000000"),
            has_gateway: flags & GATEWAY != 0,
        })
    };
    rows.filter_map(route).collect()
}

/// Destination, its prefix, ..., flags and device last; loopback's reject routes have prefix 0 too.
fn parse_routes_v6(table: &str) -> Vec<Route> {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let route = |row: Vec<&str>| {
        let flags = u32::from_str_radix(row.get(8)?, 16).ok()?;
        let is_whole = row.len() == 10 && row[1] == "00" && row[0].bytes().all(|b| b == b'0');
        (flags & REJECT == 0).then(|| Route {
            device: row.get(9).map_or_else(String::new, |device| (*device).to_owned()),
            is_default: is_whole,
            has_gateway: flags & GATEWAY != 0,
        })
    };
    rows.filter_map(route).collect()
}

fn read_file(path: &str) -> Result<String, DeviceError> {
    std::fs::read_to_string(path).map_err(|source| DeviceError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_leads_nowhere_and_counts() {
        let lo = Device::find("lo").unwrap();
        assert!(lo.is_ethernet && lo.is_loopback && lo.way_out.is_none() && lo.mtu >= 1500, "{lo:?}");
        lo.counters().unwrap();
        let none = Device::find("no-such0").unwrap_err().to_string();
        assert!(
            none.starts_with("there is no network device no-such0; there are ") && none.contains("lo"),
            "{none}"
        );
    }

    #[test]
    fn counters_are_read_by_their_columns() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n  lo: 11 12 13 14 15 16 17 18 21 22 23 24 25 26 27 28\n eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let lo = parse_counters(text, "lo").unwrap();
        assert_eq!((lo.received_bytes, lo.received_packets, lo.received_dropped), (11, 12, 14));
        assert_eq!((lo.sent_bytes, lo.sent_packets, lo.sent_dropped), (21, 22, 24));
        assert_eq!(parse_counters(text, "eth0").unwrap().sent_dropped, 12);
        assert_eq!(parse_counters(text, "eth"), None);
    }

    #[test]
    fn a_default_route_is_one_to_everywhere_and_a_gateway_is_another_host() {
        let route = |device: &str, is_default: bool, has_gateway: bool| Route {
            device: device.into(),
            is_default,
            has_gateway,
        };
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                  eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                  eth2\t0000010A\t0100000A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let expected = [("eth0", true, true), ("eth1", false, false), ("eth2", false, true)];
        assert_eq!(parse_routes_v4(v4), expected.map(|(device, all, gateway)| route(device, all, gateway)));
        let zero = "0".repeat(32);
        let v6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth2\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n\
             fe80{} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth3\n",
            "0".repeat(28)
        );
        assert_eq!(parse_routes_v6(&v6), [route("eth2", true, true), route("eth3", false, false)]);
    }

    #[test]
    fn a_card_is_found_below_a_vlan_and_beside_the_device_in_a_bridge() {
        let devices = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(devices.path().join(path)).unwrap();
        let link = |path: &str, to: &str| {
            std::os::unix::fs::symlink(devices.path().join(to), devices.path().join(path)).unwrap();
        };
        for device in
            ["eth0/device", "wlan0/phy80211", "eth0.7", "bond0", "br0", "veth0", "veth1", "vx0", "br1"]
        {
            make(device);
        }
        for (above, below) in [("eth0.7", "eth0"), ("bond0", "eth0.7"), ("br0", "bond0"), ("br0", "veth0")] {
            link(&format!("{above}/lower_{below}"), below);
        }
        for (member, bridge) in [("veth0", "br0"), ("bond0", "br0"), ("veth1", "br1")] {
            link(&format!("{member}/master"), bridge);
        }
        link("br1/lower_veth1", "veth1");
        std::fs::write(devices.path().join("vx0/uevent"), "DEVTYPE=vxlan\nINTERFACE=vx0\n").unwrap();
        let way_out = |device: &str| find_card(devices.path(), device);
        for device in ["eth0", "eth0.7", "bond0", "br0", "veth0"] {
            assert_eq!(way_out(device), Some(WayOut::Card("eth0".into())), "{device}");
        }
        assert_eq!(way_out("wlan0"), Some(WayOut::Card("wlan0".into())));
        assert_eq!(way_out("vx0"), Some(WayOut::Tunnel("vx0".into())));
        assert_eq!([way_out("veth1"), way_out("br1"), way_out("none")], [None, None, None]);
    }
}
