Feature: Services that follow a metric
  A service begins with its least number of nodes. While its metric stays above the target it gets a node more; while it
  stays well below, one goes back, which is drained first. What is not known changes nothing. A real Prometheus scrapes
  the load from a page that the scenario writes.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4" with a Prometheus
    And the vCluster "default" is set to
      | scale.evaluate_ms    | 1000 |
      | scale.up_window_ms   | 2000 |
      | scale.down_window_ms | 2000 |
      | scale.threshold      | 0.5  |
      | scale.cooldown_ms    | 4000 |

  Scenario: It begins with its least nodes, grows under load up to its most, and shrinks when that is over
    Given the load is 5
    And the service "web" of 1 to 3 nodes runs
      | target | 10                          |
      | does   | holds out until it may stop |
    When it is evaluated 4 times more
    Then "web" has run on 1 nodes all the time
    When the load is 20
    Then "web" grows to 2 nodes
    And "web" grows to 3 nodes
    And at least 4 s lie between two changes of "web"
    When it is evaluated 6 times more
    Then "web" still runs on 3 nodes
    When the load is 4
    Then a node of "web" is asked to end its rank, and still held
    When what was asked to end may stop
    Then "web" shrinks to 2 nodes
    And it was the last node of "web" that went
    And the node that "web" gave back is free
    And "web" shrinks to 1 nodes
    When it is evaluated 6 times more
    Then "web" still runs on 1 nodes

  Scenario: Equality does nothing, and neither does what is between threshold and target
    Given the load is 10
    And the service "web" of 1 to 3 nodes runs
      | target | 10 |
    And control has read the load 10
    When it is evaluated 6 times more
    Then "web" has run on 1 nodes all the time
    When the load is 20
    Then "web" grows to 2 nodes
    When the load is 5
    And control has read the load 5
    And it is evaluated 8 times more
    Then "web" still runs on 2 nodes
    When the load is 4.9
    Then "web" shrinks to 1 nodes

  Scenario: Without room under its quota it stays, without an error, and goes on when there is room
    Given the project "acme/small" may have 1 nodes
    And the load is 20
    And the service "web" of 1 to 3 nodes runs
      | target  | 10         |
      | project | acme/small |
    When it is evaluated 6 times more
    Then "web" has run on 1 nodes all the time
    And "oscillating" was alerted 0 times
    And "metric_missing" was alerted 0 times
    When the project "acme/small" may have 2 nodes
    Then "web" grows to 2 nodes

  Scenario: What is not known changes nothing, and is alerted when it stays so
    Given the load is 5
    And the service "web" of 1 to 3 nodes runs
      | target | 10 |
    And control has read the load 5
    When nobody says the load
    Then 4 queries of the metric fail
    And "metric_missing" was alerted 1 times
    And control shows no load of "web"
    When the load is NaN
    Then 4 queries of the metric fail
    And control shows no load of "web"
    And "metric_missing" was alerted 1 times
    And "web" has run on 1 nodes all the time
    When the load is 20
    Then "web" grows to 2 nodes

  Scenario: A gap begins the window anew
    Given the vCluster "default" is set to
      | scale.up_window_ms | 5000 |
    And the load is 5
    And the service "web" of 1 to 2 nodes runs
      | target | 10 |
    And control has read the load 5
    When the load is 20
    And control has read the load 20
    And it is evaluated 2 times more
    And nobody says the load
    And 1 queries of the metric fail
    And the load is 20
    Then "web" grows to 2 nodes no sooner than 5 s after the last failed query

  Scenario: Where no node is free it stays, and grows when there is one again
    Given these jobs run
      | name   | nodes | does  |
      | others | 3     | waits |
    And the load is 20
    And the service "web" of 1 to 3 nodes runs
      | target | 10 |
    When it is evaluated 5 times more
    Then "web" has run on 1 nodes all the time
    When "others" may end
    Then "web" grows to 2 nodes

  Scenario: A service that makes room stays as it is, comes back with its least nodes, and has its cooldown
    Given the vCluster "default" is set to
      | preemption.patience_ms        | 0    |
      | preemption.near_completion_ms | 0    |
      | preemption.thrash_interval_ms | 0    |
      | scale.up_window_ms            | 1000 |
      | scale.cooldown_ms             | 5000 |
    And the load is 20
    And the service "web" of 1 to 3 nodes runs
      | target     | 10                          |
      | class      | 2                           |
      | checkpoint | signal                      |
      | takes      | 6s                          |
      | does       | counts 6000 --write-ms 6000 |
    Then "web" grows to 2 nodes
    # It writes for longer than its cooldown, and would have grown.
    When these jobs are submitted
      | name   | nodes | class | does  |
      | urgent | 4     | 8     | waits |
    Then "urgent" is running
    And "web" went through "running checkpointing stopping suspended pending"
    And "web" had 2 nodes as long as it was checkpointing
    And "web" was preempted 1 times
    And "web" asks for 1 nodes
    And for 3 s nothing is read for "web", and nothing of it changes
    When "urgent" may end
    Then "web" begins again with 1 nodes
    And "web" printed "restored"
    And "web" grows to 2 nodes no sooner than 5 s after it began again

  Scenario: Its least nodes are its home's, others go to their owner at once, whatever the load
    Given a vCluster "web" with the nodes "n1 n2"
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 20000 |
      | scale.evaluate_ms             | 1000  |
      | scale.up_window_ms            | 1000  |
      | scale.down_window_ms          | 2000  |
      | scale.cooldown_ms             | 1000  |
    And the vCluster "default" is set to
      | preemption.near_completion_ms | 0     |
      | sharing.return_grace_ms       | 10000 |
    And the load is 10
    And the service "shop" of 1 to 4 nodes runs
      | target   | 10  |
      | vcluster | web |
    # What was lent for other work stays a while, and a service uses what its vCluster has.
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 3     | 3     | web      | exit 0 |
    Then "guest" is completed
    When the load is 20
    Then "shop" grows to 2 nodes
    And "shop" is left with "n1 n2"
    And "shop" grows to 4 nodes
    When the vCluster "web" is set to
      | scale.cooldown_ms | 600000 |
    And these jobs are submitted
      | name  | nodes | class | does  |
      | owner | 2     | 0     | waits |
    Then "owner" runs on "n3 n4"
    And "owner" started within 9 seconds of its submit
    And "shop" is left with "n1 n2"
    And "shop" was preempted 0 times
    And "shop" was never "checkpointing stopping suspended"

  Scenario: Its least nodes are never borrowed ones
    Given a vCluster "web" with the nodes "n1 n2"
      | preemption.near_completion_ms | 0    |
      | sharing.return_grace_ms       | 6000 |
    And these jobs run
      | name | nodes | class | vcluster | does  |
      | busy | 1     | 3     | web      | waits |
    When the service "shop" of 2 to 4 nodes is submitted
      | vcluster | web |
    Then "shop" waits for "nodes"
    When these jobs are submitted
      | name  | nodes | class | vcluster | does   |
      | guest | 2     | 3     | web      | exit 0 |
    Then "guest" is completed
    And the nodes "n3 n4" are used by "web"
    And "shop" waits for "nodes"
    And "shop" was never "starting"
    When "busy" may end
    Then "shop" runs on "n1 n2"

  Scenario: Fewer nodes than its least are alerted, and replaced in its cooldown too
    Given the vCluster "default" is set to
      | scale.cooldown_ms | 600000 |
    And the load is 10
    And the service "web" of 2 to 3 nodes runs
      | target | 10 |
    When an operator takes a node from "web"
    Then "below_min" was alerted 1 times
    And "web" grows to 2 nodes
    And the node that "web" gave back is free
    And "web" is in attempt 1

  Scenario: Growing and shrinking in turns is alerted
    Given the vCluster "default" is set to
      | scale.up_window_ms   | 1000 |
      | scale.down_window_ms | 1000 |
      | scale.cooldown_ms    | 1    |
    And the load is 5
    And the service "web" of 1 to 2 nodes runs
      | target | 10 |
    When the load goes up and down, so that "web" changes 5 times
    Then "oscillating" was alerted 0 times
    When the load goes up and down, so that "web" changes 1 times
    Then "oscillating" was alerted 1 times

  Scenario: A service that cannot be is refused by the field that is wrong
    Then each of these services is refused over REST, gRPC and on the command line
      | settings                       | field                | text                                  |
      | {target: .nan}                 | scale.target         | NaN is not a valid target             |
      | {target: 0}                    | scale.target         | 0 is not a valid target; give a number above 0 |
      | {target: -1}                   | scale.target         | -1 is not a valid target              |
      | {min_nodes: 0}                 | scale.min_nodes      | must be at least 1 node               |
      | {min_nodes: 2, max_nodes: 1}   | scale.max_nodes      | 1 is less than min_nodes, 2           |
      | {metric: {prometheus: ""}}     | scale.metric         | give a query                          |
      | {up_window: 0s}                | scale.up_window      | a window must be at least 1 ms        |
      | {down_threshold: 1}            | scale.down_threshold | 1 is not between 0 and 1              |
      | {down_threshold: 0}            | scale.down_threshold | 0 is not between 0 and 1              |
    And a service whose target is written as NaN is no JSON: 400
