Feature: Borrowing
  Idle nodes of one vCluster serve another, and come back when their own needs them.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4"
    And the vCluster "default" is set to
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 500   |
      | checkpoint.timeout_ms         | 20000 |

  Scenario: A guest uses what its owner does not, gives it back, and goes on later
    Given a vCluster "physics" with the nodes "n1 n2"
      | preemption.enabled            | false |
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 1500  |
      | checkpoint.timeout_ms         | 20000 |
    And a vCluster "biology" with the nodes "n3 n4"
      | preemption.enabled            | false |
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 500   |
      | checkpoint.timeout_ms         | 20000 |
    When these jobs are submitted
      | name  | nodes | class | vcluster | checkpoint | does       |
      | guest | 4     | 3     | biology  | signal     | counts 250 |
    Then "guest" runs on "n1 n2 n3 n4"
    And the nodes "n1 n2" are used by "biology"
    And "guest" printed "step 20"
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | owner | 2     | 3     | physics  | exit 0 |
    Then "owner" is completed
    # The grace of 1.5 s, a checkpoint, the end of the guest, and no longer than these take at their longest.
    And "owner" started no sooner than 1 seconds after its submit
    And "owner" started within 22 seconds of its submit
    And "guest" went through "checkpointing stopping suspended pending starting running"
    And "guest" was stopped since it was "went back to vCluster physics"
    And "guest" printed "restored"
    And "guest" is completed
    And the nodes "n1 n2" are used by "physics"

  Scenario: Of its guests those go that cost least, and no more of them than needed
    Given a vCluster "physics" with the nodes "n1 n2 n3"
      | preemption.enabled            | false |
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 500   |
      | checkpoint.timeout_ms         | 20000 |
    And a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 500   |
    And the vCluster "default" is set to
      | sharing.allow_lending | false |
    And these jobs run
      | name   | nodes | class | vcluster | checkpoint | takes | does        |
      | dear   | 1     | 1     | biology  | signal     | 5m    | counts 3000 |
      | cheap  | 1     | 6     | biology  | signal     | 1s    | counts 3000 |
      | dearer | 1     | 1     | biology  | signal     | 8m    | counts 3000 |
    When these jobs are submitted
      | name  | nodes | class | vcluster | does  |
      | owner | 1     | 0     | physics  | waits |
    Then "owner" is running
    And "cheap" was stopped since it was "went back to vCluster physics"
    And "dear" was never "checkpointing stopping suspended"
    And "dearer" was never "checkpointing stopping suspended"

  Scenario: Nodes for sensitive work are not lent
    Given a vCluster "clinic" with the nodes "n1 n2 n3 n4"
      | profile                       | sensitive |
      | preemption.near_completion_ms | 0         |
      | sharing.return_grace_ms       | 500       |
    And a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 1     | 3     | biology  | exit 0 |
      | next  | 1     | 3     | biology  | exit 0 |
    Then "guest" waits for "nodes"
    And "next" waits for "nodes"
    And "guest" was never "starting"
    When the vCluster "clinic" is set to
      | profile | service |
    Then "guest" is completed

  Scenario: Sensitive work borrows nothing
    Given a vCluster "clinic" with the nodes "n1"
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And these jobs run
      | name  | nodes | class | vcluster | sensitive | does  |
      | first | 1     | 5     | clinic   | yes       | waits |
    When these jobs are submitted
      | name | nodes | class | vcluster | sensitive | does  |
      | next | 1     | 5     | clinic   | yes       | waits |
    Then "next" waits for "nodes"
    # Its neighbours' nodes are idle, and lent for other work.
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 1     | 5     | clinic   | exit 0 |
    Then "guest" is completed
    And "next" waits for "nodes"
    And "next" was never "starting"
    When "first" may end
    Then "next" runs on "n1"

  Scenario: A vCluster lends no more than it may, and all that is missing or nothing
    Given a vCluster "physics" with the nodes "n1 n2 n3"
      | preemption.near_completion_ms | 0   |
      | sharing.lending_limit         | 1   |
      | sharing.return_grace_ms       | 500 |
    And a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And the vCluster "default" is set to
      | sharing.allow_lending | false |
    When these jobs are submitted
      | name | nodes | class | vcluster | does  |
      | two  | 2     | 3     | biology  | waits |
    Then "two" waits for "nodes"
    When these jobs are submitted
      | name | nodes | class | vcluster | does  |
      | one  | 1     | 3     | biology  | waits |
    Then "one" is running
    And "two" was never "starting"
    When the vCluster "physics" is set to
      | sharing.lending_limit | 3 |
    Then "two" is running

  Scenario: A vCluster borrows no more than it may
    Given a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.borrowing_limit       | 1   |
      | sharing.return_grace_ms       | 500 |
    When these jobs are submitted
      | name  | nodes | class | vcluster | does  |
      | first | 1     | 3     | biology  | waits |
    Then "first" is running
    When these jobs are submitted
      | name | nodes | class | vcluster | does  |
      | next | 1     | 3     | biology  | waits |
    Then "next" waits for "nodes"
    When "first" may end
    Then "next" is running
    And "next" started after "first"

  Scenario: Only what is idle, in service and kept for nobody is lent
    Given a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And these jobs run
      | name | nodes | class | on | does  |
      | busy | 1     | 3     | n1 | waits |
    And the node "n2" is drained
    And the node "n3" is reserved for others
    When these jobs are submitted
      | name  | nodes | class | vcluster | does  |
      | guest | 1     | 3     | biology  | waits |
    Then "guest" runs on "n4"
    When these jobs are submitted
      | name | nodes | class | vcluster | does  |
      | more | 1     | 3     | biology  | waits |
    Then "more" waits for "nodes"

  Scenario: Its own idle nodes first, then those of whoever has the smallest backlog
    Given a vCluster "physics" with the nodes "n1 n2"
      | preemption.near_completion_ms | 0   |
      | sharing.allow_borrowing       | false |
      | sharing.return_grace_ms       | 500 |
    And a vCluster "biology" with the nodes "n4"
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And these jobs run
      | name | nodes | class | vcluster | on | does  |
      | busy | 1     | 3     | physics  | n2 | waits |
    And these jobs are submitted
      | name    | nodes | class | vcluster | on | does  |
      | backlog | 1     | 3     | physics  | n2 | waits |
    When these jobs are submitted
      | name | nodes | class | vcluster | does  |
      | own  | 1     | 3     | biology  | waits |
    Then "own" runs on "n4"
    When these jobs are submitted
      | name  | nodes | class | vcluster | does  |
      | guest | 1     | 3     | biology  | waits |
    Then "guest" runs on "n3"
    And the nodes "n1" are used by "physics"

  Scenario: Of a class that vCluster borrows first whose work would be gone quickly
    Given a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And a vCluster "physics" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    And these jobs run
      | name | nodes | class | does  |
      | busy | 3     | 3     | waits |
      | last | 1     | 3     | waits |
    When these jobs are submitted
      | name  | nodes | class | vcluster | checkpoint | takes | does        |
      | slow  | 1     | 3     | biology  | signal     | 10m   | counts 3000 |
      | quick | 1     | 3     | physics  | signal     | 1s    | counts 3000 |
    Then "slow" waits for "nodes"
    And "quick" waits for "nodes"
    When "last" may end
    Then "quick" is running
    And "slow" was never "starting running"

  Scenario: Nothing is lent for work that nobody may stop
    Given a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0   |
      | sharing.return_grace_ms       | 500 |
    When these jobs are submitted
      | name    | nodes | class | vcluster | checkpoint | does        |
      | unsaved | 1     | 7     | biology  |            | waits       |
      | highest | 1     | 10    | biology  | signal     | counts 3000 |
    Then "unsaved" waits for "nodes"
    And "highest" waits for "nodes"
    When the user cancels "unsaved"
    And the user cancels "highest"
    And these jobs are submitted
      | name  | nodes | class | vcluster | checkpoint | does        |
      | saved | 1     | 7     | biology  | signal     | counts 3000 |
    Then "saved" is running
    And "unsaved" was never "starting running"
    And "highest" was never "starting running"

  Scenario: What nobody may stop is not placed on a node that was lent for other work
    Given a vCluster "biology" with the nodes ""
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 3000  |
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 1     | 3     | biology  | exit 0 |
    Then "guest" is completed
    When these jobs are submitted
      | name    | nodes | class | vcluster | does  |
      | unsaved | 1     | 7     | biology  | waits |
    Then "unsaved" waits for "nodes"
    # The node is still there, and taken by what may be stopped.
    When these jobs are submitted
      | name | nodes | class | vcluster | does   |
      | next | 1     | 3     | biology  | exit 0 |
    Then "next" is completed
    And "unsaved" was never "starting running"

  Scenario: Who lends nothing, and who borrows nothing
    Given a vCluster "physics" with the nodes "n1 n2 n3 n4"
      | sharing.allow_lending   | false |
      | sharing.return_grace_ms | 500   |
      | preemption.near_completion_ms | 0 |
    And a vCluster "biology" with the nodes ""
      | sharing.allow_borrowing | false |
      | sharing.return_grace_ms | 500   |
      | preemption.near_completion_ms | 0 |
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 1     | 3     | biology  | exit 0 |
    Then "guest" waits for "nodes"
    When the vCluster "biology" is set to
      | sharing.allow_borrowing | true |
    And these jobs are submitted
      | name | nodes | class | vcluster | does   |
      | own  | 1     | 3     | physics  | exit 0 |
    Then "own" is completed
    And "guest" waits for "nodes"
    And "guest" was never "starting"
    When the vCluster "physics" is set to
      | sharing.allow_lending | true |
    Then "guest" is completed
