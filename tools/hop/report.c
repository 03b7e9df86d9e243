/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes one direction's figures as JSON: frames by fate, the applied (g, G) by least squares over
 * all frames, over punctual ones and over lone ones, and lateness. */
#include "way.h"

#include <math.h>

/* Returns the quantile of lateness for `share`, µs. */
static uint32_t late_quantile_us(const struct hop_way *way, double share)
{
	uint64_t seen = 0;
	uint32_t us = 0;

	for (; us < HOP_LATENESS_MAX_US; us++) {
		seen += way->late_us[us];
		if ((double)seen >= share * (double)way->frames)
			break;
	}
	return us;
}

/* null if the frames' sizes do not separate g and G. */
static void report_fit(const struct hop_fit *fit, FILE *out)
{
	double slope, rest;

	if (fit->count < 3 || fit->x_min == fit->x_max) {
		fprintf(out, "null");
		return;
	}
	slope = fit->xy / fit->xx;
	rest = fit->yy - slope * fit->xy;
	fprintf(out,
		"{\"g_us\": %.4f, \"G_us_per_KiB\": %.5f, \"frames_count\": %llu, "
		"\"size_min_bytes\": %u, \"size_max_bytes\": %u, \"residual_us\": %.3f}",
		(fit->y_mean - slope * fit->x_mean) / 1e3, slope * 1024 / 1e3,
		(unsigned long long)fit->count, fit->x_min, fit->x_max,
		sqrt((rest > 0 ? rest : 0) / (double)(fit->count - 2)) / 1e3);
}

void hop_report(const struct hop_way *way, const char *name, FILE *out)
{
	double mean = way->frames ? way->late_sum_ns / (double)way->frames : 0;

	fprintf(out,
		"{\"way\": \"%s\", \"frames\": %llu, \"bytes\": %llu, \"queue_dropped\": %llu, ",
		name, (unsigned long long)way->frames, (unsigned long long)way->bytes,
		(unsigned long long)way->queue_dropped);
	fprintf(out,
		"\"lost\": %llu, \"duplicated\": %llu, \"reordered\": %llu, \"corrupted\": %llu, ",
		(unsigned long long)way->lost, (unsigned long long)way->duplicated,
		(unsigned long long)way->reordered, (unsigned long long)way->corrupted);
	fprintf(out, "\"applied\": ");
	report_fit(&way->fit, out);
	fprintf(out, ", \"punctual\": ");
	report_fit(&way->fit_punctual, out);
	fprintf(out, ", \"lone\": ");
	report_fit(&way->fit_lone, out);
	fprintf(out,
		", \"lateness_mean_us\": %.3f, \"lateness_p50_us\": %u, \"lateness_p99_us\": %u, "
		"\"lateness_max_us\": %.3f}",
		mean / 1e3, late_quantile_us(way, 0.50), late_quantile_us(way, 0.99),
		(double)way->late_max_ns / 1e3);
}
