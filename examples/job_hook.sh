#!/bin/sh
# Hook of a training job, as a shell script: lumion fabric run BENCH --hook examples/job_hook.sh
# The ranks of this job follow the file $JOB_FILE. Its lines are the members in rank order; an empty file means: leave.
set -eu
: "${JOB_FILE:=/tmp/$LUMION_JOB.members}"
case "$LUMION_EVENT" in
  stop) : > "$JOB_FILE" ;;                                      # LUMION_FAILED has failed; the others leave their group
  rebuild) printf '%s\n' $LUMION_MEMBERS > "$JOB_FILE" ;;       # LUMION_REPLACED_BY has the rank of LUMION_FAILED
  restore | go) ;;                                              # the ranks copy their state and go on by themselves
esac
