Feature: Checkpoints
  Work that can writes its state when that is worth more than it costs, or somebody asks.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4"
    And the vCluster "default" is set to
      | preemption.patience_ms        | 0    |
      | preemption.near_completion_ms | 0    |
      | preemption.thrash_interval_ms | 0    |
      | sharing.return_grace_ms       | 500  |
      | sharing.allow_lending         | false |

  # What runs is looked at every 30 s: all that it shows is in one scenario.
  Scenario: One is due after the longest interval, in each mode, and none without storage, too soon, or of who is asked by people
    Given the vCluster "default" is set to
      | checkpoint.min_interval_ms | 500  |
      | checkpoint.max_interval_ms | 1000 |
    And a vCluster "paused" with the nodes "n1"
      | checkpoint.min_interval_ms | 500   |
      | checkpoint.max_interval_ms | 1000  |
      | sharing.allow_borrowing    | false |
      | sharing.return_grace_ms    | 500   |
    And the checkpoint storage of "paused" writes nothing
    And these jobs run
      | name    | nodes | class | vcluster | checkpoint    | trigger   | does        |
      | none    | 1     | 3     | paused   | signal        | automatic | counts 9000 |
      | manual  | 1     | 3     |          | signal        | manual    | counts 9000 |
      | signal  | 1     | 3     |          | signal        | automatic | counts 9000 |
      | shared  | 1     | 3     |          | shared_memory | automatic | counts 9000 |
    When "signal" has a checkpoint
    And "shared" has a checkpoint
    Then "none" was asked for no checkpoint
    And "manual" was asked for no checkpoint

  Scenario: Within the least interval none is written
    Given a vCluster "often" with the nodes "n1"
      | checkpoint.min_interval_ms | 500   |
      | checkpoint.max_interval_ms | 1000  |
      | sharing.allow_borrowing    | false |
      | sharing.return_grace_ms    | 500   |
    And these jobs run
      | name   | nodes | class | vcluster | checkpoint | trigger   | does        |
      | seldom | 1     | 3     |          | callback   | automatic | counts 9000 |
      | often  | 1     | 3     | often    | callback   | automatic | counts 9000 |
    When "often" has a checkpoint
    Then "seldom" was asked for no checkpoint

  Scenario: It lies where the site says
    Given these jobs run
      | name | nodes | class | checkpoint | does        |
      | work | 2     | 3     | signal     | counts 9000 |
    When the user asks "work" for a checkpoint
    Then "work" keeps checkpoint 1
    And checkpoint 1 of "work" lies below its tenant, project and number
    And "work" printed "written 1"

  Scenario: The walltime wins over a checkpoint that is being written
    Given these jobs run
      | name | nodes | class | walltime | checkpoint | does                         |
      | work | 1     | 3     | 4s       | signal     | counts 9000 --write-ms 20000 |
    When the user asks "work" for a checkpoint
    Then "work" is failed
    And "work" went through "running checkpointing failed"
    And "work" was stopped since it was "walltime"
    And "work" has 1 failed checkpoints

  Scenario: Work goes on from the last checkpoint that is whole
    Given these jobs run
      | name | nodes | class | requeue | checkpoint | does                        |
      | work | 1     | 3     | always  | signal     | counts 9000 --write-ms 3000 |
    When the user asks "work" for a checkpoint
    And "work" keeps checkpoint 1
    And the user asks "work" for a checkpoint
    And "work" printed "asked 2"
    And the user queues "work" again
    Then "work" is in attempt 2
    And "work" is running
    And "work" keeps checkpoint 1
    And "work" printed "restored"

  Scenario: Without storage who has to go is stopped without a checkpoint
    Given the checkpoint storage of "default" writes nothing
    And these jobs run
      | name | nodes | class | checkpoint | does        |
      | work | 4     | 2     | signal     | counts 9000 |
    When these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 4     | 8     | exit 0 |
    Then "urgent" is completed
    And "work" is failed
    And "work" was never "checkpointing suspended"
    And "work" was stopped since it was "preempted by allocation"
    And the metrics count lattice_checkpoint_storage_unavailable for "vcluster='default'"
