#!/bin/sh
# The paper's comparison, from recordings to report: every variant, 200 epochs, 5 seeds on a GPU; 60 epochs, 2 seeds on CPUs.
#   sh research/run_paper.sh gpu speech_commands            # 55 runs of 200 epochs, and the sweep of the KL term's weight
#   sh research/run_paper.sh cpu speech_commands            # 22 runs of 60 epochs, about 9 hours of one core for the first seed
# Stopped at any moment, the same command goes on from each run's last whole epoch. What follows the folder goes to
# `kws-export score`: recordings for noise, sounds and speech.
set -eu
kind=${1:?gpu or cpu}; data=${2:?folder of Speech Commands}; shift 2
case $kind in
  gpu) recipe=paper; seeds=1,2,3,4,5; how="--device cuda --workers 1 --threads 4" ;;
  cpu) recipe=paper-60; seeds=1,2; how="--device cpu --threads 1" ;;
  *) echo "gpu or cpu; got $kind" >&2; exit 2 ;;
esac
for end in 0.0 0.1 0.45 1.0; do  # the weight that the KL term climbs to, for one variant of each family
  mkdir -p runs/kl
  { echo "kl_end = $end"; cat export/recipes/$recipe.toml; } > runs/kl/$recipe-$end.toml
done
kws-export sweep --recipe export/recipes/$recipe.toml --data "$data" --seeds $seeds $how
kws-export score runs/$recipe/*/ --data "$data" "$@" --out research/$recipe/scores
kws-export report research/$recipe/scores --out research/$recipe
for end in 0.0 0.1 0.45 1.0; do
  kws-export sweep --recipe runs/kl/$recipe-$end.toml --data "$data" --variants plugin_ce_kl,edl_ce --seeds 1 $how --out runs/kl/$recipe-$end
  kws-export score runs/kl/$recipe-$end/*/ --data "$data" --out research/kl/$recipe-$end/scores
  kws-export report research/kl/$recipe-$end/scores --out research/kl/$recipe-$end
done
