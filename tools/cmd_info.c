#include "cli.h"
#include "commands.h"
#include "cpu_features.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPTION_JSON = 1 };

static const cli_option options[] = {
    {OPTION_JSON, 'j', "json", NULL, "print one JSON object"},
    {0, 0, NULL, NULL, NULL},
};

static const cli_command command = {"info", "gdn info [options]",
                                    "Prints the library's version and features, each backend and whether this machine "
                                    "can use it, and what the CPU offers.",
                                    options};

static int print_json(const char *cpu)
{
    cJSON *const root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", gdn_version_string());
    cJSON_AddStringToObject(root, "features", gdn_features());
    cJSON_AddStringToObject(root, "cpu_features", cpu);
    cJSON *const backends = cJSON_AddArrayToObject(root, "backends");
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        if (gdn_backend_info(i, &report) != GDN_OK) {
            cJSON_Delete(root);
            return cli_fail("info", "%s", gdn_last_error());
        }
        cJSON *const item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", report.name);
        cJSON_AddBoolToObject(item, "usable", report.usable);
        cJSON_AddNumberToObject(item, "num_devices", report.num_devices);
        cJSON_AddStringToObject(item, report.usable ? "description" : "reason",
                                report.usable ? report.description : report.reason);
        cJSON_AddItemToArray(backends, item);
    }
    char *const text = cJSON_Print(root);
    cJSON_Delete(root);
    if (text == NULL) {
        return cli_fail("info", "out of memory");
    }
    printf("%s\n", text);
    cJSON_free(text);
    return CLI_SUCCESS;
}

static int print_text(const char *cpu)
{
    printf("libgdn %s\nfeatures: %s\n", gdn_version_string(), gdn_features());
    if (gdn_version() != GDN_VERSION_NUMBER) {
        printf("built for: %d.%d.%d\n", GDN_VERSION_MAJOR, GDN_VERSION_MINOR, GDN_VERSION_PATCH);
    }
    printf("cpu: %s\nbackends, best first:\n", cpu);
    for (int32_t i = 0; i < gdn_backend_count(); i++) {
        gdn_backend_report report = {.struct_size = sizeof(report)};
        if (gdn_backend_info(i, &report) != GDN_OK) {
            return cli_fail("info", "%s", gdn_last_error());
        }
        if (report.usable) {
            printf("  %-6s usable, %d device%s: %s\n", report.name, (int)report.num_devices,
                   report.num_devices == 1 ? "" : "s", report.description);
        } else {
            printf("  %-6s not usable: %s\n", report.name, report.reason);
        }
    }
    return CLI_SUCCESS;
}

int command_info(int argc, char **argv)
{
    cli_parser parser;
    bool json = false;
    int id = 0;
    cli_begin(&parser, &command, argc, argv);
    while ((id = cli_next(&parser)) > 0) {
        json = true;
    }
    if (id < 0) {
        return id == CLI_HELP ? CLI_SUCCESS : CLI_USAGE;
    }
    if (cli_operand_count(&parser) > 0) {
        return cli_usage_error(&parser, "operand '%s' is not expected; allowed: none", cli_operand(&parser, 0));
    }
    char cpu[256];
    cpu_features(cpu, sizeof(cpu));
    return json ? print_json(cpu) : print_text(cpu);
}
