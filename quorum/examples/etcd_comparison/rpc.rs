//! Messages of the etcd API (v3) that this program uses, with their field numbers; unused fields are omitted. Source:
//! etcd's `rpc.proto` and `kv.proto` (Apache-2.0).

use prost::Message;

/// Header of every answer.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// Request of `KV/Put`.
#[derive(Clone, PartialEq, Message)]
pub struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutDone {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

/// Request of `KV/Range`.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Pair {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeReply {
    #[prost(message, repeated, tag = "2")]
    pub pairs: Vec<Pair>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Request of `Maintenance/Status`.
#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusFound {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// Member id of the leader; 0 if none is known.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    #[prost(uint64, tag = "7")]
    pub applied: u64,
}
