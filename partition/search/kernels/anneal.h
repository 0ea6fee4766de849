/* Simulated annealing of a monotone labelling. */
#ifndef NP_ANNEAL_H
#define NP_ANNEAL_H

#include "moves.h"

/* Tries `moves` moves at temperatures that start at `hot` ns and fall by `factor`; see
 * annealing.anneal. */
void np_anneal(const struct np_move_sizes *sizes, const struct np_move_tables *tables,
               struct np_labelling *state, int64_t moves, double hot, double factor);

#endif
