#!/bin/sh
# The paper's comparison, from recordings to report: every variant, 200 epochs, 5 seeds on a GPU; 60 epochs, 2 seeds on CPUs.
#   sh research/run_paper.sh gpu speech_commands            # 55 runs of 200 epochs, and 8 with other weights of the KL term
#   sh research/run_paper.sh cpu speech_commands            # 22 and 8 runs of 60 epochs, 20 to 40 minutes of one core each
#   sh research/run_paper.sh long speech_commands           # 4 runs of 200 epochs on CPUs, two hours of one core each
# Stopped at any moment, the same command goes on from each run's last whole epoch. What follows the folder goes to
# `kws-export score`: recordings for noise, sounds and speech, without which the report has no tables of them. For those of research/:
#   --noise 'esc10/*/[23]-*' --sounds 'esc10/*/3-*' --speech libri_speech/test-other
# Run it at the top of a checkout, with kws-export installed.
set -eu
sweep() {  # a run that fails, as one that loses a word does, holds up nothing: its scores tell
  kws-export sweep --recipe export/recipes/$recipe.toml --data "$data" $how "$@" || test $? -eq 1
}
kind=${1:?gpu, cpu or long}; data=${2:?folder of Speech Commands}; shift 2
weights="--seeds 1 --variants plugin_ce_kl,edl_ce --kl-ends 0,0.1,0.45,1"
case $kind in
  gpu) recipe=paper; how="--device cuda --workers 1 --threads 4"; first="--seeds 1,2,3,4,5"; second=$weights ;;
  cpu) recipe=paper-60; how="--device cpu --threads 1"; first="--seeds 1,2"; second=$weights ;;
  long)
    recipe=paper; how="--device cpu --threads 1"
    first="--seeds 1,2 --variants softmax"; second="--seeds 1 --variants edl_ce,plugin_ce" ;;
  *) echo "gpu, cpu or long; got $kind" >&2; exit 2 ;;
esac
sweep $first
sweep $second
kws-export score runs/$recipe/*/ --data "$data" "$@" --out research/$recipe/scores
python bench/losses.py --json > research/$recipe/losses.json
kws-export report research/$recipe/scores --out research/$recipe --loss-times research/$recipe/losses.json
