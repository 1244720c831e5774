Feature: Graphs of work
  Members of a graph begin when others have ended: after their success, their failure, any end, index by index, or one
  at a time. A graph is taken whole or not at all, and what can never begin is cancelled.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4" for the users "alice bob"

  Scenario: Members run in the order of their edges
    Given the graph "nightly"
      | member  | does     | after       |
      | prepare | succeeds |             |
      | left    | succeeds | prepare     |
      | right   | succeeds | prepare     |
      | publish | succeeds | left, right |
    When alice submits it from the command line
    Then the graph is completed
    And "left" began after "prepare" ended
    And "right" began after "prepare" ended
    And "publish" began after "left" ended
    And "publish" began after "right" ended

  Scenario: What can never begin is cancelled, and all that rests on it
    Given the graph "caught"
      | member  | does     | after                        |
      | works   | succeeds |                              |
      | breaks  | fails    |                              |
      | mends   | succeeds | failure of breaks            |
      | goes-on | succeeds | success of breaks            |
      | behind  | succeeds | goes-on                      |
      | no-need | succeeds | failure of works             |
      | always  | succeeds | any of goes-on, any of works |
    When alice submits it
    Then the graph is completed
    And its members are
      | works   | completed |
      | breaks  | failed    |
      | mends   | completed |
      | goes-on | cancelled |
      | behind  | cancelled |
      | no-need | cancelled |
      | always  | completed |
    And "goes-on" waited in vain for success of "breaks", which was failed
    And "behind" waited in vain for success of "goes-on", which was cancelled
    And "no-need" waited in vain for failure of "works", which was completed

  Scenario: A failure that nobody waits for fails the graph, once all members have ended
    Given the graph "uncaught"
      | member | does     | after  |
      | breaks | fails    |        |
      | after  | succeeds | breaks |
      | other  | waits    |        |
    When alice submits it
    Then "breaks" is failed
    And "after" is cancelled
    And "other" is running
    And the graph is running, 1 of its members not ended
    When "other" may end
    Then the graph is failed
    And the graph names "breaks" as the member that failed

  Scenario: A member that a person cancels neither succeeded nor failed
    Given the graph "withdrawn"
      | member   | does     | after            |
      | first    | waits    |                  |
      | if-ok    | succeeds | success of first |
      | if-bad   | succeeds | failure of first |
      | whatever | succeeds | any of first     |
    When alice submits it
    Then "first" is running
    When alice cancels "first"
    Then the graph is cancelled
    And its members are
      | first    | cancelled |
      | if-ok    | cancelled |
      | if-bad   | cancelled |
      | whatever | completed |

  Scenario: Arrays go on index by index, and an index that the first has not begins at once
    Given the graph "pairs"
      | member | does                 | array | after                |
      | one    | waits, index 2 fails | 0-2   |                      |
      | two    | waits                | 0-3   | corresponding of one |
    When alice submits it
    Then the elements "0 1 2" of "one" are running
    And the elements "3" of "two" are running
    And the elements "0 1 2" of "two" have not begun
    When element 1 of "one" may end
    Then the elements "1" of "two" are running
    And the elements "0" of "one" are running
    And the elements "0 2" of "two" have not begun
    When element 2 of "one" may end
    Then the elements "2" of "one" are failed
    And the elements "2" of "two" are cancelled
    And the elements "2" of "two" have not begun
    When everything may end
    Then the graph is failed
    And the elements "0 1" of "one" are completed
    And the elements "0 1 3" of "two" are completed

  Scenario: Of one name and user one runs at a time, in the order of the submits
    When alice runs "lattice submit --name import --dependency singleton does:waits" as "first"
    And alice runs "lattice submit --name import --dependency singleton does:waits" as "second"
    And alice runs "lattice submit --name import --dependency singleton does:waits" as "third"
    And bob runs "lattice submit --name import --dependency singleton does:waits" as "another user's"
    And alice runs "lattice submit --name export --dependency singleton does:waits" as "another name's"
    Then "first" is running
    And "another user's" is running
    And "another name's" is running
    And "second" is blocked until "first" ends
    And "third" is blocked until "first" ends
    When "first" may end
    Then "second" is running
    And "third" is blocked until "second" ends
    And "second" began after "first" ended
    When everything may end
    Then "third" is completed
    And "third" began after "second" ended

  Scenario: Whoever cancels a graph ends all its members: SIGTERM, grace, SIGKILL
    Given the graph "ends"
      | member   | does                 | after           |
      | polite   | ends when asked      |                 |
      | stubborn | holds out when asked |                 |
      | later    | succeeds             | polite          |
      | anyhow   | succeeds             | any of stubborn |
    When alice submits it
    Then "polite" is running
    And "stubborn" is running
    And "polite" can be asked to end
    And "stubborn" can be asked to end
    And bob may not cancel the graph: 403
    When alice cancels the graph from the command line
    Then the graph is cancelled
    And the graph says that alice cancelled it
    And "polite" was asked to end, and ended by itself
    And "stubborn" was asked to end, and killed after 2 s
    And no process of "polite" is left
    And no process of "stubborn" is left
    And "later" never began
    And "anyhow" never began
    And alice may not cancel the graph: 409

  Scenario: A graph is drawn and listed
    Given a tenant "other"
    And the graph "drawn"
      | member | does     | after            |
      | first  | waits    |                  |
      | second | succeeds | first            |
      | mends  | succeeds | failure of first |
    When alice submits it
    Then "first" is running
    And its edges are, over REST and on the command line
      | from  | to     | condition |
      | first | second | success   |
      | first | mends  | failure   |
    And its picture for Graphviz is, over REST and on the command line
      | line                                                                                |
      | digraph "drawn" {                                                                   |
      | "first" [label="first\\n<first> running", style=filled, fillcolor=lightblue];       |
      | "second" [label="second\\n<second> blocked"];                                       |
      | "mends" [label="mends\\n<mends> blocked"];                                          |
      | "first" -> "second";                                                                |
      | "first" -> "mends" [label="failure"];                                               |
      | }                                                                                   |
    And alice finds the graph listed for the tenant "acme"
    And alice does not find it listed for the tenant "other"
    When "first" may end
    Then the graph is completed
    And alice finds the graph listed for the tenant "acme"

  Scenario: A member that lost its node is waited for, and keeps its place in the queue
    Given the graph "survives"
      | member | does     | on | requeue | after |
      | long   | waits    | n1 | once    |       |
      | after  | succeeds |    |         | long  |
    When alice submits it
    Then "long" runs its attempt 1
    When alice runs "lattice submit --nodelist n1 does:waits" as "rival"
    And "long" loses its node "n1", which is booted anew
    Then "long" runs its attempt 2
    And "rival" is pending
    And "after" is blocked
    And the graph is running, 2 of its members not ended
    When everything may end
    Then the graph is completed
    And "after" began after "long" ended
    And "rival" began after "long" ended

  Scenario: Waiting counts from when a member is eligible, not from its submit
    Given the graph "patient"
      | member | does  | on | after |
      | first  | waits | n1 |       |
      | second | waits | n1 | first |
    When alice submits it
    Then "first" is running
    When alice runs "lattice submit --nodelist n1 does:waits" as "newcomer"
    And 2 s pass
    And "first" may end
    Then "newcomer" is running
    And "second" is pending
    When everything may end
    Then the graph is completed
    And "second" began after "newcomer" ended

  Scenario: A graph that cannot be is refused whole, with what is wrong
    Then a graph of 1234 members is refused in "members" with
      | detail | DAG exceeds maximum size (1234 allocations, limit: 1000)                                                                                                             |
      | hint   | Hint: Split it into several, each submitted after the last member of the one before (`--dependency`), or use arrays for members that differ in a number alone. |
    And each of these graphs is refused over REST, gRPC and on the command line
      | members                                                                      | field           | text                                                   |
      | []                                                                           | members         | a DAG must have at least one member                    |
      | [{name: a, after: [c]}, {name: b, after: [a]}, {name: c, after: [b]}]        | members         | the members wait for each other: b -> c -> a -> b      |
      | [{name: a, after: [a]}]                                                      | members         | the members wait for each other: a -> a                |
      | [{name: a, after: [nobody]}]                                                 | members.a.after | no member has the name "nobody"                        |
      | [{name: a}, {name: a}]                                                       | members[1].name | two members have the name "a"                          |
      | [{name: a}, {name: b, after: {done: [a]}}]                                   | members.b.after | "done" is not one of success, failure, any, corresponding |
      | [{name: a}, {name: b, array: 0-3, after: {corresponding: [a]}}]              | members.b.after | corresponding needs two job arrays                     |
      | [{name: a, nodes: 0}]                                                        | members.a.nodes | request at least 1 node                                |
      | [{name: a, array: "0-9:0"}]                                                  | members.a.array | 0-9:0 has a step of 0; the step is at least 1          |
      | [{name: a, class: 11}]                                                       | members.a.class | 11                                                     |
