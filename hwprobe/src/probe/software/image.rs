//! Image of the node, if the node boots from an image: one value that represents all files of the system.
//!
//! Supported are `OSTree` (the deployment of the kernel argument `ostree=`), verified roots (`roothash=` and `usrhash=`
//! of systemd's verity generator), and network-booted images. The latter are named by the kernel arguments of dracut's
//! live and NFS images, of Cray CSM (`root=…-s3:s3://…:etag`) and of xCAT. Only the path of an address is used: servers
//! differ between nodes with the same image, and a query may contain a secret. In the path, identifiers of the host are
//! masked: a server may give each node a folder of its own. The arguments are documented in the OSTree manual
//! ("Deployments"), systemd-veritysetup-generator(8), dracut.cmdline(7) and CSM's boot orchestration.

use crate::{HostIdentifiers, Root, cmdline};
use lattice_conformance::{ClassRecord, Reading, Value};

/// Arguments with the hash of the whole file system as their value.
const HASHES: &[(&str, &str)] = &[
    ("software.image.root_hash", "roothash"),
    ("software.image.usr_hash", "usrhash"),
];

/// Arguments that name an image: dracut's network live image, its file inside a live medium, Debian's and Ubuntu's live
/// images, and xCAT's.
const IMAGES: &[&str] = &["root", "rd.live.squashimg", "fetch", "url", "imgurl"];

pub(super) fn keys(root: &Root, record: &mut ClassRecord) {
    let line = root.text("/proc/cmdline");
    let arguments = line.map(|line| cmdline::arguments(&line));
    let value_of = |name: &str| {
        arguments.as_ref().and_then(|arguments| {
            let value = last_value(arguments, name);
            value.map_or(Reading::Absent, |value| Reading::Present(value.to_owned()))
        })
    };
    for (key, argument) in HASHES {
        record.put(*key, value_of(argument).and_then(|hash| hex(&hash)));
    }
    let deployment = match value_of("ostree").and_then(|path| deployment(root, &path)) {
        // Booted into a deployment without the argument.
        Reading::Absent if root.exists("/run/ostree-booted") => Reading::Unsupported,
        found => found,
    };
    record.put("software.image.ostree", deployment);
    let named = arguments.as_ref().and_then(|arguments| {
        let found = IMAGES.iter().find_map(|name| {
            let value = last_value(arguments, name)?;
            image_of(value)
        });
        found.map_or(Reading::Absent, Reading::Present)
    });
    let (name, tag) = match named {
        Reading::Present((name, tag)) => (
            Reading::Present(name),
            tag.map_or(Reading::Absent, Reading::Present),
        ),
        other => (
            other.clone().map(|(name, _)| name),
            other.map(|_| String::new()),
        ),
    };
    let own = HostIdentifiers::read(&root.bounded());
    record.put("software.image.name", name.map(|name| own.mask(&name)));
    record.put("software.image.etag", tag);
}

/// The last value of an argument, which is the one in effect.
fn last_value<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut values = arguments.iter().rev().filter_map(|argument| {
        let (found, value) = argument.split_once('=')?;
        (found == name).then_some(value.trim_matches('"'))
    });
    values.next()
}

fn hex(hash: &str) -> Reading<Value> {
    let is_hash = hash.len() >= 32 && hash.len() <= 128;
    if is_hash && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Reading::Present(hash.to_ascii_lowercase().into())
    } else {
        Reading::failed("the kernel argument is not a valid hash")
    }
}

/// Checksum of the booted deployment. The number in the argument (`boot.1`) is the boot slot, which alternates between
/// updates. The path in the argument is a link to `<checksum>.<serial>`.
fn deployment(root: &Root, argument: &str) -> Reading<Value> {
    // The root of a deployment contains /sysroot, and /ostree as a link into it.
    let places = [format!("/sysroot{argument}"), argument.to_owned()];
    let mut found = Reading::Absent;
    for place in places {
        found = root.link_name(place);
        if found != Reading::Absent {
            break;
        }
    }
    found.and_then(|name| {
        let checksum = name.split('.').next().unwrap_or_default();
        hex(checksum)
    })
}

/// Name and tag of the image that an argument names; `None` if the argument names a device.
fn image_of(value: &str) -> Option<(String, Option<String>)> {
    // nfs:server:/path:options
    if let Some(place) = value.strip_prefix("nfs:").or(value.strip_prefix("nfs4:")) {
        let path = place.split(':').find(|part| part.starts_with('/'))?;
        return Some((path.trim_start_matches('/').to_owned(), None));
    }
    // A local file of a live medium.
    if !value.contains("://") {
        return is_image_file(value).then(|| (value.trim_start_matches('/').to_owned(), None));
    }
    let (scheme, rest) = value.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // s3://bucket/key:etag:transport:…
    if scheme.ends_with("s3") {
        let mut parts = rest.split(':');
        let name = parts.next().filter(|name| !name.is_empty())?;
        let tag = parts.next().map(|tag| tag.trim_matches('"').to_owned());
        return Some((name.to_owned(), tag.filter(|tag| !tag.is_empty())));
    }
    let (_, path) = rest.split_once('/')?;
    (!path.is_empty()).then(|| (path.to_owned(), None))
}

/// The part of an image argument that a capture keeps: enough for the same name and tag, without server and secrets.
pub(super) fn masked_image_argument(name: &str, value: &str) -> Option<String> {
    if name == "ostree" {
        return Some(value.to_owned());
    }
    if !IMAGES.contains(&name) {
        return None;
    }
    let (image, tag) = image_of(value.trim_matches('"'))?;
    Some(match tag {
        Some(tag) => format!("s3://{image}:{tag}"),
        None if !value.contains("://") && !value.starts_with("nfs") => image,
        None => format!("live:http://masked/{image}"),
    })
}

fn is_image_file(value: &str) -> bool {
    let endings = [".squashfs", ".sqsh", ".sfs", ".erofs", ".img"];
    endings.iter().any(|ending| value.ends_with(ending)) && !value.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(value: &str) -> Option<(String, Option<String>)> {
        image_of(value)
    }

    #[test]
    fn an_image_is_its_path_without_server_and_query() {
        let csm =
            "craycps-s3:s3://boot-images/6c644208/rootfs:8f53cc5b-113:dvs:api-gw.local:300:nmn0";
        let expected = (
            "boot-images/6c644208/rootfs".to_owned(),
            Some("8f53cc5b-113".to_owned()),
        );
        assert_eq!(image(csm), Some(expected));
        let plain = |name: &str| Some((name.to_owned(), None));
        let live = "live:http://user:pw@10.0.0.254:8081/images/rocky9.5.squashfs?token=abc";
        assert_eq!(image(live), plain("images/rocky9.5.squashfs"));
        assert_eq!(image("nfs:10.4.0.1:/images/a1:ro"), plain("images/a1"));
        for value in [
            csm,
            live,
            "nfs:10.4.0.1:/images/a1:ro",
            "LiveOS/squashfs.img",
        ] {
            let kept = masked_image_argument("root", value);
            assert_eq!(kept.as_deref().and_then(image_of), image(value), "{kept:?}");
            let kept = kept.unwrap_or_default();
            assert!(!kept.contains("10.") && !kept.contains("pw") && !kept.contains("abc"));
        }
        assert_eq!(masked_image_argument("root", "UUID=6e9b"), None);
        assert_eq!(masked_image_argument("ip", "http://host/image.img"), None);
        assert_eq!(image("LiveOS/squashfs.img"), plain("LiveOS/squashfs.img"));
        for device in [
            "/dev/sda1",
            "UUID=6e9b-2c1a",
            "LABEL=root",
            "tmpfs",
            "PARTUUID=1",
            "http://host",
        ] {
            assert_eq!(image(device), None, "{device}");
        }
    }

    #[test]
    fn the_last_of_several_arguments_counts() {
        let arguments = cmdline::arguments("root=/dev/sda root=live:http://a/b quiet");
        assert_eq!(last_value(&arguments, "root"), Some("live:http://a/b"));
        assert_eq!(last_value(&arguments, "quiet"), None);
    }
}
