#!/bin/sh
# check_sass.sh OBJECT: fails unless every wgmma kernel of launch.cu's object has its HGMMAs, none of them serialised, and no
# kernel touches local memory. Needs cuobjdump; exits 77 where there is none.
set -eu

command -v cuobjdump >/dev/null 2>&1 || {
    echo "check_sass: no cuobjdump: skipped"
    exit 77
}

cuobjdump -sass "$1" | awk '
    /Function :/ { name = $3; order[++count] = name }
    / HGMMA/ { hgmma[name]++ }
    / HGMMA/ && /gsb0/ { last[name]++ }
    / (LDL|STL)/ { spill[name]++ }
    END {
        bad = 0
        for (i = 1; i <= count; i++) {
            name = order[i]
            printf "%-80s HGMMA %3d, groups %3d, local %d\n", name, hgmma[name], last[name], spill[name]
            wants = name ~ /state_kernel|prep_kernel|fused_kernel/
            # Groups are of four and eight; one an instruction means that ptxas serialised them.
            if (spill[name] || (wants && (!hgmma[name] || 2 * last[name] > hgmma[name]))) {
                bad = 1
                print "  ^ wrong"
            }
        }
        exit bad
    }'
