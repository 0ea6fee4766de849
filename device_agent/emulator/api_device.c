/* ANeuralNetworks_getDevice*, ANeuralNetworksDevice_*. */
#include "emulator.h"
#include "service.h"

/* Listing asks every driver, as on Android. */
int ANeuralNetworks_getDeviceCount(uint32_t *numDevices) {
  if (!numDevices) {
    return NP_REFUSE(UNEXPECTED_NULL, "numDevices is NULL");
  }
  np_services_await();
  *numDevices = np_device_table()->n_devices;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworks_getDevice(uint32_t devIndex, ANeuralNetworksDevice **device) {
  if (!device) {
    return NP_REFUSE(UNEXPECTED_NULL, "device is NULL");
  }
  struct np_device_table *table = np_device_table();
  if (devIndex >= table->n_devices) {
    return NP_REFUSE(BAD_DATA, "device %u of %u does not exist", devIndex, table->n_devices);
  }
  *device = &table->devices[devIndex];
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksDevice_getName(const ANeuralNetworksDevice *device, const char **name) {
  if (!device || !name) {
    return NP_REFUSE(UNEXPECTED_NULL, "device or name is NULL");
  }
  *name = device->name;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksDevice_getType(const ANeuralNetworksDevice *device, int32_t *type) {
  if (!device || !type) {
    return NP_REFUSE(UNEXPECTED_NULL, "device or type is NULL");
  }
  *type = device->type;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksDevice_getVersion(const ANeuralNetworksDevice *device, const char **version) {
  if (!device || !version) {
    return NP_REFUSE(UNEXPECTED_NULL, "device or version is NULL");
  }
  *version = device->version;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksDevice_getFeatureLevel(const ANeuralNetworksDevice *device,
                                          int64_t *featureLevel) {
  if (!device || !featureLevel) {
    return NP_REFUSE(UNEXPECTED_NULL, "device or level is NULL");
  }
  *featureLevel = device->reported_level;
  return ANEURALNETWORKS_NO_ERROR;
}

/* A device of the table is always alive. */
int ANeuralNetworksDevice_wait(const ANeuralNetworksDevice *device) {
  if (!device) {
    return NP_REFUSE(UNEXPECTED_NULL, "device is NULL");
  }
  return ANEURALNETWORKS_NO_ERROR;
}
