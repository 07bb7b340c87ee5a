. /tmp/w/env.sh; cd /tmp/w/snap$1; export PYTHONPATH=/tmp/w/snap$1/src:/tmp/w/snap$1
G() { n=$1; shift; python /tmp/w/gm.py "$@" > /tmp/w/exp/games/r10-$n.log 2>&1; }
B='"max_steps":600,"evaluate_every":200,"decay_steps":16000'
G $1-games dtr "{$B,\"learning_rate\":0.003,\"width\":32}" amazon_games_sasrec
G $1-mind dtr "{$B,\"learning_rate\":0.003,\"width\":32}" mind_dtr
G $1-ml1m dtr "{$B,\"learning_rate\":0.003,\"width\":32}" ml1m
