use lattice_client::{AllocationRequest, Client};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::discover(None)?;
    let work = AllocationRequest {
        project: "atlas/operations/web".to_owned(),
        nodes: 2,
        argv: vec!["hostname".to_owned()],
        ..AllocationRequest::default()
    };
    let within = Some(Duration::from_secs(120));
    let ended = client.submit_and_wait(&work, within).await?;
    println!("{} on {}", ended.state, ended.nodelist);

    let usage = client.tenant_usage("atlas", 90).await?;
    println!(
        "{} used {:.1} node hours in {} days",
        usage.tenant, usage.node_hours_used, usage.days
    );
    Ok(())
}
