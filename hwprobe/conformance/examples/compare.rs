//! Two nodes of one design: their digests, and the keys in which they differ.
//!
//! ```text
//! cargo run -p lattice-conformance --example compare
//! ```

use lattice_conformance::{Class, ClassRecord, PreimageError, Reading, diff, verify};

/// The NIC record of a node with one interface card. A key that has no value is recorded with the reason.
fn nics(firmware: Reading<&str>) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1_u32));
    record.require("nic.0.pci_id", Reading::Present("15b3:1021"));
    record.put("nic.0.driver", Reading::Present("mlx5_core"));
    record.put("nic.0.firmware", firmware);
    record
}

fn main() -> Result<(), PreimageError> {
    let left = nics(Reading::Present("28.39.1002"));
    let right = nics(Reading::Present("28.36.1010"));
    let unread = nics(Reading::failed("the driver did not answer"));

    for (name, record) in [("left", &left), ("right", &right), ("unread", &unread)] {
        println!("{name:>6}  {}", record.state().mark());
    }

    // A digest is the content address of the canonical bytes: a receiver checks the bytes before it decodes them.
    if let Some(digest) = left.state().digest() {
        let received = verify(&digest, &left.encode())?;
        println!(
            "the bytes have the digest and contain {} keys",
            received.entries.len()
        );
    }

    // An unknown value is neither equal nor different.
    for other in [&right, &unread] {
        println!();
        for found in diff(&left, other) {
            println!(
                "{:?}: {} {} -> {}",
                found.verdict, found.key, found.left, found.right
            );
        }
    }
    Ok(())
}
