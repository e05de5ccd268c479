"""Configurations of clusters: Chronicle's pages as they stand, and one that has every key."""

from typing import Final

# docs/replication.adoc of Chronicle Queue: hosts and their context below `cluster`
OLDER_PAGE: Final = """\
!QueueReplicationCfg {
  cluster: {
    context: !QueueClusterContext {
      heartbeatIntervalMs: 300000,
      heartbeatTimeoutMs: 500000,
      baseSourcePath: "replica/source",
      baseSinkPath: "replica/sink",
    }

    host1: {
      hostId: 1,
      connectUri: host.port1,
    }
    host2: {
      hostId: 2,
      connectUri: host.port2,
    }
    ...
  },

  queues: {
    queue1: {
      path: "queue1",
      acknowledge: false,
      masterId: 1,
    }
  }
}
"""

# the page of its later documentation: side by side, and one base path
NEWER_PAGE: Final = """\
!ChronicleQueueReplicationCfg {
  context: !QueueClusterContext {
    heartbeatIntervalMs: 300000,
    heartbeatTimeoutMs: 500000,
    basePath: "replica/$hostId",
  },

  hosts: {
    host1: {
      hostId: 1,
      connectUri: host.port1,
    }
    host2: {
      hostId: 2,
      connectUri: host.port2,
    }
    ...
  },

  queues: {
    queue1: {
      path: "queue1",
      acknowledge: false,
      masterId: 1,
    }
  }
}
"""

# what stands for the dots on both pages, with three hosts
THIRD_HOST: Final = "host3: {hostId: 3, connectUri: host.port3}"

FULL: Final = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext
    heartbeatIntervalMs: 1000
    heartbeatTimeoutMs: 5000
    baseSourcePath: replica/source
    baseSinkPath: replica/sink
    wireType: !WireType BINARY
    retryInterval: 1000
  host1: {hostId: 1, connectUri: "127.0.0.1:9001"}
  host2: {hostId: 2, connectUri: "tcp://127.0.0.1:9002", tcpBufferSize: 65536}
  host3:
    hostId: !byte 3
    connectUri: third
queues:
  orders:
    path: shop/orders
    acknowledge: true
    masterId: 1
    sourceId: !short 1002
    rollCycle: FAST_HOURLY
  trades: !ReplicatedQueueCfg {masterId: 2}
cqrepl:
  listen: ":9999"
  addresses: {third: "127.0.0.1:9003"}
  ack: {orders: {level: synced, from: 2, hosts: [2, 3], timeout: 10ms}}
  maxExcerpt: 1MiB
  scrub: 10MiB
  wireShape: seed
  pauser: sleepy
  guests: 3
  guestRate: 1MiB
  limitRate: {2: 1MiB, others: 10MiB}
  runs: false
  routes: {trades: {3: 1}}
  source:
    ackLog: acks
    acceptReturns: [2, 3]
    returnExcerpts: 1000
    returnSeconds: 5
    tailers: all
    waitFor: none
    waitForSeconds: 3
  sink:
    rollCycle: FAST_DAILY
    touchAhead: 0
    appendLog: appended
    anyCycle: true
    onDivergence: quarantine
"""
