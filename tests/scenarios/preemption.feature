Feature: Preemption
  Work of a higher class gets nodes of work of a lower one: the last resort. A job's walltime is half an hour where
  nothing else is said, so that waiting for another to end is long.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4"
    And the vCluster "default" is set to
      | preemption.patience_ms        | 0      |
      | preemption.near_completion_ms | 0      |
      | preemption.thrash_interval_ms | 0      |
      | checkpoint.timeout_ms         | 600000 |
      | sharing.return_grace_ms       | 500    |

  Scenario: Work that can be saved makes room, keeps its place, and goes on from where it was
    Given these jobs run
      | name  | nodes | class | checkpoint | does       |
      | small | 4     | 2     | signal     | counts 150 |
    And "small" printed "step 20"
    When these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 4     | 8     | exit 0 |
    Then "urgent" is completed
    And "small" went through "running checkpointing stopping suspended pending starting running"
    And "small" was preempted 1 times
    And "small" kept its place in the queue
    And "small" is in attempt 2
    And "small" printed "restored"
    And "small" printed "done 150"
    And "small" is completed
    And the metrics count lattice_preemptions_total for "vcluster='default',reason='higher_class'"
    And the metrics count lattice_preemption_checkpoint_duration_seconds_count for ""

  Scenario: Victims write at the same time, and what is free already is kept for the one they make room for
    Given these jobs run
      | name  | nodes | class | on | checkpoint | takes | does                        |
      | quick | 1     | 2     | n1 | signal     | 1s    | counts 3000                 |
      | slow  | 1     | 2     | n2 | signal     | 2s    | counts 3000 --write-ms 2000 |
    And these jobs run
      | name   | nodes | class | on | does  |
      | beside | 1     | 9     | n3 | waits |
      | other  | 1     | 9     | n4 | waits |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 2     | 8     | waits |
    And "quick" went through "checkpointing stopping suspended"
    And these jobs are submitted
      | name | nodes | class | does   |
      | late | 1     | 7     | exit 0 |
    Then "urgent" is running
    And "quick" and "slow" wrote checkpoints at the same time
    And "late" is pending
    When "urgent" may end
    Then "late" is completed
    And "late" started after "urgent"

  Scenario: The cheapest makes room, and nobody of the same class
    Given these jobs run
      | name  | nodes | class | on | checkpoint | takes | does        |
      | equal | 1     | 8     | n1 | signal     | 1s    | counts 3000 |
      | dear  | 1     | 3     | n2 | signal     | 5m    | counts 3000 |
      | cheap | 1     | 3     | n3 | signal     | 10s   | counts 3000 |
      | dear2 | 1     | 3     | n4 | signal     | 4m    | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 1     | 8     | waits |
    Then "urgent" runs on "n3"
    When these jobs are submitted
      | name  | nodes | class | does  |
      | next  | 1     | 8     | waits |
    Then "next" runs on "n4"
    And "equal" was never "checkpointing stopping suspended"
    And "dear" was never "checkpointing stopping suspended"

  Scenario: Who has the node that is asked for makes room, though another would be cheaper
    Given these jobs run
      | name  | nodes | class | on | checkpoint | takes | does        |
      | cheap | 1     | 2     | n1 | signal     | 1s    | counts 3000 |
      | dear  | 1     | 3     | n2 | signal     | 5m    | counts 3000 |
    And these jobs run
      | name | nodes | class | on | does  |
      | rest | 2     | 9     |    | waits |
    When these jobs are submitted
      | name   | nodes | class | on | does  |
      | urgent | 1     | 8     | n2 | waits |
    Then "urgent" runs on "n2"
    And "dear" was preempted 1 times
    And "cheap" was never "checkpointing stopping suspended"

  Scenario: One that is large rather than two that are small
    Given these jobs run
      | name | nodes | class | on    | checkpoint | takes | does        |
      | one  | 1     | 3     | n1    | signal     | 10s   | counts 3000 |
      | two  | 1     | 3     | n2    | signal     | 10s   | counts 3000 |
      | pair | 2     | 3     |       | signal     | 10s   | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 2     | 8     | waits |
    Then "urgent" runs on "n3 n4"
    And "one" was never "checkpointing stopping suspended"
    And "two" was never "checkpointing stopping suspended"

  Scenario: Three make room for one, and four do not
    Given these jobs run
      | name | nodes | class | checkpoint | takes | does        |
      | a    | 1     | 3     | signal     | 1s    | counts 3000 |
      | b    | 1     | 3     | signal     | 1s    | counts 3000 |
      | c    | 1     | 3     | signal     | 1s    | counts 3000 |
      | d    | 1     | 3     | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name | nodes | class | does   |
      | four | 4     | 9     | exit 0 |
    Then "four" waits for "nodes"
    When the user cancels "four"
    And these jobs are submitted
      | name  | nodes | class | does  |
      | three | 3     | 9     | waits |
    Then "three" is running
    And "four" was never "starting running"

  Scenario: What ends soon is left alone
    Given the vCluster "default" is set to
      | preemption.near_completion_ms | 300000 |
    And these jobs run
      | name   | nodes | class | on       | walltime | checkpoint | takes | does        |
      | ending | 1     | 3     | n1       | 4m       | signal     | 1s    | counts 3000 |
      | other  | 1     | 3     | n2       | 30m      | signal     | 1m    | counts 3000 |
      | rest   | 2     | 9     |          | 30m      | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 1     | 8     | waits |
    Then "urgent" runs on "n2"
    And "ending" was never "checkpointing stopping suspended"

  Scenario: Of class 7 nobody goes who cannot be saved
    Given these jobs run
      | name    | nodes | class | on | checkpoint | takes | does        |
      | unsaved | 1     | 7     | n1 |            |       | waits       |
      | saved   | 1     | 7     | n2 | signal     | 5m    | counts 3000 |
      | rest    | 2     | 10    |    | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 1     | 9     | waits |
    Then "urgent" runs on "n2"
    And "unsaved" was never "checkpointing stopping suspended"

  Scenario: Nothing large is broken off for what is small
    Given these jobs run
      | name | nodes | class | checkpoint | takes | does        |
      | work | 4     | 3     | signal     | 5m    | counts 3000 |
    When these jobs are submitted
      | name  | nodes | class | walltime | does   |
      | short | 1     | 4     | 1m       | exit 0 |
    Then "short" waits for "nodes"
    When these jobs are submitted
      | name | nodes | class | walltime | does  |
      | long | 4     | 9     | 30m      | waits |
    Then "long" is running
    And "short" was never "starting running"

  Scenario: What cannot be saved is asked to end, gets the grace, and is queued again or fails, as it said
    Given these jobs run
      | name  | nodes | class | requeue | does      |
      | again | 2     | 2     | always  | holds out |
      | once  | 2     | 2     | never   | holds out |
    When these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 4     | 8     | exit 0 |
    Then "urgent" is completed
    And "again" held out for the grace, and was killed
    And "once" held out for the grace, and was killed
    And "once" is failed
    And "once" was stopped since it was "preempted by allocation"
    And "again" is in attempt 2
    And "again" is running

  Scenario: Who does not answer is stopped when the time is up, and has lost what it did
    Given the vCluster "default" is set to
      | checkpoint.timeout_ms | 1500 |
    And these jobs run
      | name  | nodes | class | requeue | checkpoint | takes | does                       |
      | mute  | 2     | 2     | never   | signal     | 1s    | counts 3000 --never-answer |
      | again | 2     | 2     | always  | signal     | 1s    | counts 3000 --never-answer |
    When these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 4     | 8     | exit 0 |
    Then "urgent" is completed
    And "mute" is failed
    And "mute" has 1 failed checkpoints
    And "again" is in attempt 2
    And "again" was never "suspended"
    And the metrics count lattice_preemption_failed_checkpoint_total for ""
    And the metrics count lattice_preemption_victim_requeue_total for ""

  Scenario: Who is slow and answers gets half as much again, once
    Given the vCluster "default" is set to
      | checkpoint.timeout_ms | 1500 |
    And these jobs run
      | name | nodes | class | checkpoint | takes | does                        |
      | slow | 2     | 2     | signal     | 1s    | counts 3000 --write-ms 1900 |
      | late | 2     | 2     | signal     | 1s    | counts 3000 --write-ms 9000 |
    When these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 4     | 8     | exit 0 |
    Then "urgent" is completed
    And the checkpoint of "slow" took longer than 1500 ms
    And "slow" went through "checkpointing stopping suspended"
    And "late" is failed
    And "late" has 1 failed checkpoints

  Scenario: Who is called back may put it off, so often
    Given the vCluster "default" is set to
      | checkpoint.max_deferrals | 1 |
    And these jobs run
      | name  | nodes | class | checkpoint | takes | does                                         |
      | once  | 2     | 2     | callback   | 1s    | counts 3000 --defer-ms 700                   |
      | twice | 2     | 2     | callback   | 1s    | counts 3000 --defer-ms 700 --defer-ms 700    |
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 4     | 8     | waits |
    Then "urgent" is running
    And "once" printed "deferred 1 for 700 ms"
    And the checkpoint of "once" took longer than 700 ms
    And "once" went through "checkpointing stopping suspended"
    And "twice" printed "refused"
    And "twice" went through "checkpointing stopping suspended"

  Scenario: Who has moved is left alone for a while
    Given the vCluster "default" is set to
      | preemption.thrash_interval_ms | 600000 |
    And these jobs run
      | name  | nodes | class | on       | checkpoint | takes | does        |
      | moved | 1     | 3     | n1       | signal     | 1s    | counts 3000 |
      | other | 1     | 3     | n2       | signal     | 5m    | counts 3000 |
      | rest  | 2     | 9     |          | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name  | nodes | class | does  |
      | first | 1     | 8     | waits |
    And "first" runs on "n1"
    And "first" may end
    And "moved" is in attempt 2
    And "moved" is running
    And these jobs are submitted
      | name   | nodes | class | does  |
      | second | 1     | 8     | waits |
    Then "second" runs on "n2"
    And "moved" was preempted 1 times

  Scenario: Who was moved often counts as a class higher
    Given the vCluster "default" is set to
      | preemption.thrash_count | 1 |
    And these jobs run
      | name  | nodes | class | on       | checkpoint | takes | does        |
      | moved | 1     | 3     | n1       | signal     | 1s    | counts 3000 |
      | other | 1     | 3     | n2       | signal     | 5m    | counts 3000 |
      | rest  | 2     | 9     |          | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name  | nodes | class | does  |
      | first | 1     | 4     | waits |
    And "first" runs on "n1"
    And "first" may end
    And "moved" is in attempt 2
    And "moved" is running
    And these jobs are submitted
      | name   | nodes | class | does  |
      | second | 1     | 4     | waits |
    Then "second" runs on "n2"
    And "moved" was preempted 1 times

  Scenario: Sensitive work makes no room
    Given these jobs run
      | name   | nodes | class | sensitive | does  |
      | secret | 2     | 1     | yes       | waits |
    And these jobs run
      | name  | nodes | class | checkpoint | takes | does        |
      | plain | 2     | 2     | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name | nodes | class | does  |
      | all  | 4     | 9     | waits |
    Then "all" waits for "nodes"
    When the user cancels "all"
    And these jobs are submitted
      | name   | nodes | class | does   |
      | urgent | 2     | 9     | exit 0 |
    Then "urgent" is completed
    And "plain" was preempted 1 times
    And "secret" was never "stopping"

  Scenario: Sensitive work is made room for, and has its nodes once they have said what they are
    Given these jobs run
      | name  | nodes | class | checkpoint | takes | does        |
      | small | 4     | 2     | signal     | 1s    | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | sensitive | does   |
      | secret | 2     | 9     | yes       | exit 0 |
    Then "small" went through "checkpointing stopping suspended"
    And "secret" is completed
    And "small" was preempted 1 times
    And "small" is in attempt 2
    And "small" printed "restored"

  Scenario: Nobody makes room for who waits for quota
    Given a project "small" of at most 1 nodes
    When these jobs are submitted
      | name   | nodes | class | project | hold | does   |
      | urgent | 1     | 9     | small   | yes  | exit 0 |
    And these jobs run
      | name  | nodes | class | project | checkpoint | takes | does        |
      | its   | 1     | 2     | small   | signal     | 1s    | counts 3000 |
      | other | 3     | 2     | acme    | signal     | 1s    | counts 3000 |
    And the user releases "urgent"
    Then "urgent" waits for "waiting for quota headroom"
    When the user cancels "its"
    Then "urgent" is completed
    And "its" was never "checkpointing suspended"
    And "other" was never "checkpointing stopping suspended"

  Scenario: A vCluster of services takes only borrowed nodes from its work
    Given a vCluster "web" with the nodes "n1"
      | preemption.patience_ms        | 0    |
      | preemption.near_completion_ms | 0    |
      | preemption.thrash_interval_ms | 0    |
      | preemption.only_borrowed      | true |
      | sharing.borrowing_limit       | 1    |
      | sharing.return_grace_ms       | 500  |
    And these jobs run
      | name | nodes | class | vcluster | on | checkpoint | takes | does        |
      | own  | 1     | 3     | web      | n1 | signal     | 1s    | counts 3000 |
    And these jobs run
      | name | nodes | class | vcluster | checkpoint | takes | does        |
      | lent | 1     | 3     | web      | signal     | 1m    | counts 3000 |
    When these jobs are submitted
      | name   | nodes | class | vcluster | checkpoint | does        |
      | urgent | 1     | 8     | web      | signal     | counts 3000 |
    Then "urgent" is running
    And "lent" was preempted 1 times
    And "own" was never "checkpointing stopping suspended"

  Scenario: A class outside 0 to 10 is refused by its name
    Then submitting this is refused with 400 for "class"
      | name | nodes | class | does   |
      | high | 1     | 11    | exit 0 |
