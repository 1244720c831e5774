Feature: What people know from batch schedulers
  Arrays, hold and release, requeue, begin times, deadlines, another walltime, job scripts with lines of their own, and
  nodes that are reserved for a time.

  Background:
    Given a cluster of the nodes "n1 n2 n3 n4" for the users "alice bob"

  Scenario: An array runs so many elements at a time, each with its index
    When alice runs "lattice submit --array 0-5%2 does:waits" as "sweep"
    Then the tally of "sweep" is "6 elements, 4 pending, 2 running"
    And the elements "0 1" of "sweep" are running
    And 2 nodes are free
    When "sweep" may end
    Then "sweep" is completed
    And the elements of "sweep" ran with the indices "0 1 2 3 4 5"
    And never more than 2 elements of "sweep" ran at a time

  Scenario: Sizes and steps of 0, and others that cannot be, are refused by their field
    Then each of these is refused over REST, gRPC and on the command line
      | field | value    | text                                          |
      | nodes | 0        | request at least 1 node                       |
      | array | 0-9:0    | 0-9:0 has a step of 0; the step is at least 1 |
      | array | 0-9%0    | %0: no element would ever run                 |
      | array | 9-0      | is descending                                 |
      | array | 1,1      | index 1 occurs twice                          |
      | array | 0-100000 | it has more than 100000 elements              |
      | array | a-b      | is neither an index nor a range               |

  Scenario: Work on hold waits until it is released
    When alice runs "lattice submit --hold does:succeeds" as "kept"
    Then "kept" is held
    And bob runs "lattice release <kept>" and is refused with code 5
      | who | the user that submitted the allocation |
    And "kept" is held
    When alice runs "lattice release <kept>"
    Then "kept" is completed
    When alice runs "lattice submit --nodelist n1 does:waits" as "runs"
    And alice runs "lattice submit --nodelist n1 does:succeeds" as "next"
    Then "next" is pending
    When alice runs "lattice hold <next>"
    Then "next" is held
    When "runs" may end
    Then "runs" is completed
    And "next" is held
    When alice runs "lattice release <next>"
    Then "next" is completed

  Scenario: Work goes back to the queue, and runs again
    When alice runs "lattice submit does:waits" as "again"
    Then "again" runs its attempt 1
    When alice runs "lattice requeue <again>"
    Then "again" runs its attempt 2
    And the process of attempt 1 of "again" is gone
    When "again" may end
    Then "again" is completed

  Scenario: Nothing begins before its time
    When alice runs "lattice submit --begin now+3seconds does:succeeds" as "early"
    Then "early" waits because it "begins at"
    And "early" is completed
    And "early" began at least 3 s after its submit, and not before its begin time

  Scenario: What cannot keep its deadline is ended
    When alice runs "lattice submit --nodelist n1 --deadline now+5seconds does:waits" as "slow"
    And alice runs "lattice submit --nodelist n1 --walltime 1h --deadline now+3602seconds does:succeeds" as "late"
    Then "slow" is running
    And "late" is cancelled
    And "late" ended because of "it could not end by its deadline"
    And "late" never began
    And "slow" is failed
    And "slow" ended because of "it could not end by its deadline"
    And alice runs "lattice submit --walltime 1h --deadline now+10minutes does:succeeds" and is refused with code 2
      | field | deadline                |
      | why   | cannot end before the deadline |
    And alice runs "lattice submit --deadline 2020-01-01 does:succeeds" and is refused with code 2
      | field | deadline             |
      | why   | which is in the past |

  Scenario: A job script carries lines of its own
    Given the script "job.sh"
      | 1 | #!/bin/sh                                          |
      | 2 | #SBATCH --job-name=theirs --nodes=1                |
      | 3 | #SBATCH --time=00:10:00                            |
      | 4 | #LATTICE --project acme --name ours                |
      | 5 | #LATTICE --env COLOUR=green                        |
      | 6 | echo "$COLOUR $1 as rank $LATTICE_NODE_RANK"       |
    When alice runs "lattice submit job.sh --fast" as "plain"
    Then "plain" is completed
    And "plain" printed "green --fast as rank 0"
    And "plain" has
      | name     | ours  |
      | walltime | 10m   |
      | nodes    | 1     |
    When alice runs "lattice submit --walltime 5m --nodes 2 job.sh" as "other"
    Then "other" is completed
    And "other" has
      | name     | ours |
      | walltime | 5m   |
      | nodes    | 2    |

  Scenario: What a job script asks for and nobody supports is refused by its name
    Given the script "odd.sh"
      | 1 | #!/bin/sh                     |
      | 2 | #SBATCH --account=acme        |
      | 3 | #SBATCH --licenses=matlab:2   |
      | 4 | #LATTICE --nodez 4            |
      | 5 | true                          |
    Then alice runs "lattice submit odd.sh" and is refused with code 2
      | all    | not submitted: 2 errors                                                            |
      | theirs | odd.sh:3: #SBATCH --licenses                                                       |
      | ours   | odd.sh:4: #LATTICE: unknown option "--nodez"; did you mean --nodes?                |

  Scenario: A maintenance window keeps its nodes clear
    When ada runs "lattice reservation create firmware --nodes n[1-4] --from now+1minute --duration 1h --reason firmware"
    And alice runs "lattice submit --walltime 10m does:succeeds" as "long"
    And alice runs "lattice submit does:succeeds" as "endless"
    And alice runs "lattice submit --walltime 5s does:succeeds" as "short"
    Then "short" is completed
    And "long" waits because it "kept for reservation firmware from"
    And "endless" waits because it "without a walltime it cannot be backfilled"
    And alice runs "lattice reservation delete firmware" and is refused with code 5
      | role | operator |
    When ada runs "lattice reservation delete firmware"
    Then "long" is completed
    And "endless" is completed

  Scenario: Who may use reserved nodes does, and nobody else
    When ada runs "lattice reservation create beamtime --nodes n[1-3] --duration 1h --user bob --reason beamtime"
    And alice runs "lattice submit --nodes 2 does:succeeds" as "outside"
    Then "outside" waits because it "kept for reservation beamtime from"
    When bob runs "lattice submit --nodes 3 --walltime 30m --reservation beamtime does:waits" as "inside"
    Then "inside" is running
    And "inside" has
      | nodelist | n[1-3] |
    And alice runs "lattice submit --reservation beamtime does:succeeds" and is refused with code 2
      | name | beamtime |
    And alice runs "lattice reservation create mine --nodes n4 --reason mine" and is refused with code 5
      | role | operator |
    When ada runs "lattice reservation delete beamtime"
    And "inside" may end
    Then "inside" is completed
    And "outside" is completed

  Scenario: An operator gives work more time while it runs
    When alice runs "lattice submit --walltime 5s does:waits" as "long"
    Then "long" runs its attempt 1
    And alice runs "lattice extend <long> +1h" and is refused with code 5
      | what | make a walltime longer |
    When ada runs "lattice extend <long> +1h"
    And "long" has run for 7 s
    Then "long" runs its attempt 1
    When "long" may end
    Then "long" is completed
